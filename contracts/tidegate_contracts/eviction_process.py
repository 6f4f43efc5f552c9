"""How the eviction-policy container is started, reached, probed and configured beside an on-demand server."""

from typing import Final

from .kubernetes_token import token_volume

MODULE: Final = "tidegate_eviction"
"""The container runs `python -m tidegate_eviction serve`; its settings are in `SETTINGS_FILE`."""

LEASE_PORT: Final = 8090
ADMIN_PORT: Final = 8091

STARTED_PATH: Final = "/startedz"
"""Answers 200 once the control secret lies in its folder: the server, which needs it, is started after that."""
LIVE_PATH: Final = "/healthz"
METRICS_PATH: Final = "/metrics"

CONTROL_ROOT: Final = "/run/tidegate/control"  # A volume in memory that only the policy and its server mount.
CONTROL_SECRET_FILE: Final = f"{CONTROL_ROOT}/secret"
RECYCLE_FILE: Final = f"{CONTROL_ROOT}/recycle"
"""Written by the policy, once nobody needs its server any more: the process is to end, and to be started anew."""
STATE_ROOT: Final = "/var/lib/tidegate"  # Learned footprints: a volume that lives as long as the pod.
CLUSTER_ROOT: Final = "/var/run/secrets/tidegate/cluster"
"""`CLUSTER` is mounted here, in the policy's container alone."""
CLUSTER: Final = token_volume("cluster")
"""The volume with which the policy reads the keys that the cluster signs tokens with, and finds its namespace."""
CLUSTER_KEYS_FILE: Final = "jwks.json"
"""Below `CLUSTER_ROOT`, instead of an API server: the keys themselves."""
KEYS_PATH: Final = "/openid/v1/jwks"  # Of the API server.
KEYS_REQUIRED: Final = "TIDEGATE_EVICTION_KEYS_REQUIRED"
"""A variable of the policy's environment. With any value the policy serves no lease before it has read keys.

Without it, the network policies alone protect the lease port until then."""

SETTINGS_ROOT: Final = "/etc/tidegate/eviction"
"""Its settings ConfigMap is mounted here as a folder; the policy re-reads the file when it changes."""
SETTINGS_FILE: Final = "eviction.json"

STAGING_ROOT: Final = "/var/lib/tidegate-staging"
"""Where a pool stages models: the volume of staged files, which the policy writes and its server only reads. Both mount
it here, as a whole, for what the server's repository holds are links; a dataset stays mounted in both as without."""
STAGED_REPOSITORY: Final = f"{STAGING_ROOT}/models"
"""The server's repository then; it is there once `STARTED_PATH` answers."""
