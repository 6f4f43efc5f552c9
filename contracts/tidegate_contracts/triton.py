"""The contract for a Triton process: its ports, probes and restricted protocols.

Ports and paths are Triton's defaults. Triton's `--http-restricted-api` and `--grpc-restricted-protocol` options refuse
a request to a restricted protocol without the secret (HTTP 403).
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
"""POST: every model, with the state of each version and the reason if it could not be loaded."""

# `model-config` and `statistics` stay open: the proxy serves them for models that a caller can inspect.
RESTRICTED_PROTOCOLS: Final = ("model-repository", "shared-memory", "trace", "logging")
POLLING_RESTRICTED_PROTOCOLS: Final = RESTRICTED_PROTOCOLS[1:]
"""For a Triton server that polls its repository: it refuses loads and unloads itself, and the proxy reads its index."""
RESTRICTED_KEY: Final = "tidegate-control"
"""HTTP header with the secret. Over gRPC, the metadata key is `triton-grpc-protocol-` and this name."""

ALIAS_PARAMETER: Final = "tidegate.alias."
"""Prefix of a key in `parameters` of a config.pbtxt, before an alias. The value is the alias's version."""

MEMORY_MODEL: Final = "tidegate_memory"
"""The eviction policy's own model, which reads memory in Triton's container. It is not in a repository or the index."""

REPOSITORY_ROOT: Final = "/models"
TLS_ROOT: Final = "/etc/tidegate/tls"
"""A `kubernetes.io/tls` secret is mounted here, with `tls.crt` and `tls.key`."""

LEAST_MODEL_BYTES: Final = 32 << 20  # The least estimate of a model. Smaller files of a `CODE_BACKENDS` model are code.
CODE_BACKENDS: Final = "python", "vllm", "tensorrtllm"  # Their models can have weights outside their directories.


def model_ready_path(model: str) -> str:
    """Return the path at which Triton returns 200 while it has a model loaded."""
    return f"/v2/models/{model}/ready"


def code_backend(backend: str, platform: str, files: Iterable[tuple[str, int]]) -> str | None:
    """Return the backend of a model whose files are only code, so that their size does not show its memory. Return None
    for any other model. A file is its path and its size."""
    sizes = dict(files)
    if sum(sizes.values()) >= LEAST_MODEL_BYTES:
        return None
    if backend or platform:
        return backend if backend in CODE_BACKENDS else None
    return "python" if any(path.endswith("/model.py") for path in sizes) else None
