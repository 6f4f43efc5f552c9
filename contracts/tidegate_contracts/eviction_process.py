"""How the eviction-policy container of an on-demand server is started, reached, probed and configured."""

from typing import Final

from .kubernetes_token import token_volume

MODULE: Final = "tidegate_eviction"
"""The container runs `python -m tidegate_eviction serve`, with settings in `SETTINGS_FILE`."""

LEASE_PORT: Final = 8090
ADMIN_PORT: Final = 8091

STARTED_PATH: Final = "/startedz"
"""Returns 200 once the control secret exists. The server, which needs it, starts after that."""
LIVE_PATH: Final = "/healthz"
METRICS_PATH: Final = "/metrics"

CONTROL_ROOT: Final = "/run/tidegate/control"  # A volume in memory that only the policy and its server mount.
CONTROL_SECRET_FILE: Final = f"{CONTROL_ROOT}/secret"
RECYCLE_FILE: Final = f"{CONTROL_ROOT}/recycle"
"""The policy writes it when no one needs its server any more, to make the server's process restart."""
STATE_ROOT: Final = "/var/lib/tidegate"  # Learned footprints, in a volume that lives as long as the pod.
CLUSTER_ROOT: Final = "/var/run/secrets/tidegate/cluster"
"""`CLUSTER` is mounted here, only in the policy's container."""
CLUSTER: Final = token_volume("cluster")
"""The volume with which the policy reads the cluster's signing keys for tokens, and finds its namespace."""
CLUSTER_KEYS_FILE: Final = "jwks.json"
"""Below `CLUSTER_ROOT`: the keys themselves, instead of an API server."""
KEYS_PATH: Final = "/openid/v1/jwks"  # Of the API server.
KEYS_REQUIRED: Final = "TIDEGATE_EVICTION_KEYS_REQUIRED"
"""An environment variable of the policy. With any value, the policy grants no lease before it has read keys.

Without it, only network policies protect the lease port until then."""

SETTINGS_ROOT: Final = "/etc/tidegate/eviction"
"""The settings ConfigMap is mounted here as a directory. The policy reads the file again when it changes."""
SETTINGS_FILE: Final = "eviction.json"

STAGING_ROOT: Final = "/var/lib/tidegate-staging"
"""The volume of staged files, which the policy writes and its server only reads. Both mount all of it here, because the
server's repository consists of links. A dataset is also mounted in both."""
STAGED_REPOSITORY: Final = f"{STAGING_ROOT}/models"
"""The server's repository in that case. It exists once `STARTED_PATH` returns 200."""
