"""What the parts agree on about a Triton process: its ports, probes and restricted protocols.

Ports and paths are Triton's own defaults. The restricted protocols follow Triton's `--http-restricted-api` and
`--grpc-restricted-protocol` options: a request to one of them must carry the secret, or is refused (HTTP 403).
"""

from collections.abc import Iterable
from typing import Final

HTTP_PORT: Final = 8000
GRPC_PORT: Final = 8001
METRICS_PORT: Final = 8002

LIVE_PATH: Final = "/v2/health/live"
READY_PATH: Final = "/v2/health/ready"
METRICS_PATH: Final = "/metrics"
INDEX_PATH: Final = "/v2/repository/index"
"""POST: every model, and of each version its state, with the reason where it could not be loaded."""

# `model-config` and `statistics` stay open: the proxy answers them for models that a caller may inspect.
RESTRICTED_PROTOCOLS: Final = ("model-repository", "shared-memory", "trace", "logging")
POLLING_RESTRICTED_PROTOCOLS: Final = RESTRICTED_PROTOCOLS[1:]
"""Of a Triton that polls its repository: it refuses every load and unload itself, and the proxy reads its index."""
RESTRICTED_KEY: Final = "tidegate-control"
"""HTTP header that carries the secret; over gRPC the metadata key is `triton-grpc-protocol-` followed by it."""

ALIAS_PARAMETER: Final = "tidegate.alias."
"""With an alias behind it: the key in `parameters` of a config.pbtxt whose value is the version that it stands for."""

MEMORY_MODEL: Final = "tidegate_memory"
"""The eviction policy's own model, which reads memory in Triton's container; in no repository, and not in the index."""

REPOSITORY_ROOT: Final = "/models"
TLS_ROOT: Final = "/etc/tidegate/tls"
"""Where a `kubernetes.io/tls` secret is mounted: `tls.crt` and `tls.key` lie below it."""

LEAST_MODEL_BYTES: Final = 32 << 20  # The least estimate of a model; smaller files of a `CODE_BACKENDS` model are code.
CODE_BACKENDS: Final = "python", "vllm", "tensorrtllm"  # Their models may name weights outside their folders.


def model_ready_path(model: str) -> str:
    """Return the path at which Triton answers 200 while it has a model loaded."""
    return f"/v2/models/{model}/ready"


def code_backend(backend: str, platform: str, files: Iterable[tuple[str, int]]) -> str | None:
    """Return the backend of a model whose files are code without its weights, so that they do not show how much memory
    it needs; None for any other. A file is its path and its size."""
    sizes = dict(files)
    if sum(sizes.values()) >= LEAST_MODEL_BYTES:
        return None
    if backend or platform:
        return backend if backend in CODE_BACKENDS else None
    return "python" if any(path.endswith("/model.py") for path in sizes) else None
