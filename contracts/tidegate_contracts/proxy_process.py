"""How the inference proxy's container is started, reached, probed and configured."""

from typing import Final

MODULE: Final = "tidegate_proxy"
"""The container runs `python -m tidegate_proxy`, without arguments: settings come from files and the environment."""

HTTP_PORT: Final = 8080
GRPC_PORT: Final = 8081
ADMIN_PORT: Final = 8082  # Probes and metrics have a port of their own, so that load on the API cannot delay them.

HTTP_SERVICE_PORT: Final = 80
HTTPS_SERVICE_PORT: Final = 443
GRPC_SERVICE_PORT: Final = 8001  # The Service's ports are those that clients expect; gRPC has Triton's.

LIVE_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
SERVER_READY_PATH: Final = "/readyz/servers"
"""Below it, by name: 200 if a replica of the server is ready, 503 with the reason if none is, 404 if it is unknown."""
METRICS_PATH: Final = "/metrics"

_STEP: Final = r"\.*[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
PATH_PATTERN: Final = rf"^/({_STEP}(/{_STEP})*)?$"
"""How a path is spelled, such as the one below which the proxy is exposed: nothing encoded, no step of dots alone."""
FIRST_STEPS: Final = ("healthz", "models", "openapi.yaml", "predict", "readyz", "servers", "v1", "v2", "whoami")
"""How addresses of the HTTP side begin; the path of an exposure does not, as calls come with it and without it."""
AMBIGUOUS_PATH: Final = rf"^/({'|'.join(FIRST_STEPS).replace('.', '[.]')})(/|$)"
"""Matches paths at which the proxy cannot be exposed: one address below them would be two."""

ROUTING_ROOT: Final = "/etc/tidegate/routing"
"""The routing ConfigMap is mounted here as a folder (never by sub path, which would not follow changes)."""
ROUTING_FILE: Final = "routing.json"
ACCESS_FILE: Final = "access.json"
CHECKSUM: Final = ".sha256"
"""Ending of the file beside each of both that holds the SHA-256 of its text as it was rolled out, so that edits by hand
are told of."""
TLS_ROOT: Final = "/etc/tidegate/tls"
API_KEYS_ROOT: Final = "/etc/tidegate/api-keys"
"""The API-key secret is mounted here: one file a principal, each holding hashes, never keys."""
AUTHORITIES_ROOT: Final = "/etc/tidegate/authorities"
"""Private certificate authorities, one file each, that are believed of the servers of issuers and of Domino."""
UPSTREAM_CA_ROOT: Final = "/etc/tidegate/upstream-ca"
"""For each server with gRPC over TLS, the authority that vouches for it; see `upstream_ca_file`."""
LEASE_TOKEN_ROOT: Final = "/var/run/secrets/tidegate/leases"
LEASE_TOKEN_FILE: Final = "token"
"""The token that proves to eviction policies that this pod is a proxy; the kubelet replaces it before it ends."""
ACCOUNT: Final = "inference-proxy"
"""Name of the ServiceAccount of an environment's proxies: eviction policies take leases from its pods alone."""

ENVIRONMENT_PREFIX: Final = "TIDEGATE_PROXY_"
"""Every setting that is not in a mounted file is an environment variable with this prefix."""


def upstream_ca_file(server: str) -> str:
    """Return the name of the file, below `UPSTREAM_CA_ROOT`, that vouches for a server."""
    return f"{server}.crt"


def authority_file(name: str) -> str:
    """Return the name of the file, below `AUTHORITIES_ROOT`, that holds an authority's certificates."""
    return f"{name}.crt"
