"""How the inference proxy's container is started, reached, probed and configured."""

from typing import Final

MODULE: Final = "tidegate_proxy"
"""The container runs `python -m tidegate_proxy` without arguments. Settings come from files and the environment."""

HTTP_PORT: Final = 8080
GRPC_PORT: Final = 8081
ADMIN_PORT: Final = 8082  # A separate port for probes and metrics, so that load on the API cannot delay them.

HTTP_SERVICE_PORT: Final = 80
HTTPS_SERVICE_PORT: Final = 443
GRPC_SERVICE_PORT: Final = 8001  # The Service's ports are those that clients expect. gRPC has Triton's.

LIVE_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
SERVER_READY_PATH: Final = "/readyz/servers"
"""Below it, by name: 200 if a replica of the server is ready, 503 with the reason if none is, 404 if it is unknown."""
METRICS_PATH: Final = "/metrics"

_STEP: Final = r"\.*[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
PATH_PATTERN: Final = rf"^/({_STEP}(/{_STEP})*)?$"
"""Pattern of a path, such as the one below which the proxy is exposed. Nothing is encoded, and no step is only dots."""
FIRST_STEPS: Final = ("healthz", "models", "openapi.yaml", "predict", "readyz", "servers", "v1", "v2", "whoami")
"""First steps of the proxy's HTTP addresses. The path of an exposure has another: calls come with and without it."""
AMBIGUOUS_PATH: Final = rf"^/({'|'.join(FIRST_STEPS).replace('.', '[.]')})(/|$)"
"""Matches paths at which the proxy cannot be exposed, because an address below them would have two meanings."""

ROUTING_ROOT: Final = "/etc/tidegate/routing"
"""The routing ConfigMap is mounted here as a directory, never by subPath, which would not follow changes."""
ROUTING_FILE: Final = "routing.json"
ACCESS_FILE: Final = "access.json"
CHECKSUM: Final = ".sha256"
"""Suffix of a file next to each of these two. It has the SHA-256 of the text that was rolled out, so that the proxy can
report manual edits."""
TLS_ROOT: Final = "/etc/tidegate/tls"
API_KEYS_ROOT: Final = "/etc/tidegate/api-keys"
"""The API-key secret is mounted here: one file for each principal, with hashes, never keys."""
AUTHORITIES_ROOT: Final = "/etc/tidegate/authorities"
"""Private certificate authorities, one file each, that are trusted for the servers of issuers and of Domino."""
UPSTREAM_CA_ROOT: Final = "/etc/tidegate/upstream-ca"
"""For each server with gRPC over TLS, its certificate authority. See `upstream_ca_file`."""
LEASE_TOKEN_ROOT: Final = "/var/run/secrets/tidegate/leases"
LEASE_TOKEN_FILE: Final = "token"
"""The token that proves to eviction policies that this pod is a proxy. The kubelet replaces it before it expires."""
ACCOUNT: Final = "inference-proxy"
"""Name of the ServiceAccount of an environment's proxies. Eviction policies grant leases only to its pods."""

ENVIRONMENT_PREFIX: Final = "TIDEGATE_PROXY_"
"""Prefix of the environment variables for all settings outside mounted files."""


def upstream_ca_file(server: str) -> str:
    """Return the name of the file, below `UPSTREAM_CA_ROOT`, with a server's authority."""
    return f"{server}.crt"


def authority_file(name: str) -> str:
    """Return the name of the file, below `AUTHORITIES_ROOT`, with an authority's certificates."""
    return f"{name}.crt"
