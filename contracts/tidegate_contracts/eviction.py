"""An eviction policy's settings for its pool: `eviction.json`, which it reads again when it changes."""

from typing import Annotated, Final, Literal

from pydantic import Field

from .message import MOST_NUMBER, Message

VERSION: Final = 1
MODELS_SHARE: Final = 9, 10
"""Share of a slice for models if no capacity is set. The rest is for CUDA's context and the server's buffers."""
STAGED_SHARE: Final = 15, 16
"""Share of a volume for staged files. The rest is for directories, links and the file system."""
DISK_FACTOR: Final = 1.25
"""Bytes in memory for each byte on disk, if nothing was measured or declared (ModelMesh's figure)."""
Number = Annotated[int, Field(ge=0, le=MOST_NUMBER)]
Positive = Annotated[int, Field(ge=1, le=MOST_NUMBER)]
Amount = Annotated[float, Field(ge=0, le=MOST_NUMBER)]


class ManagedModel(Message):
    """One model of the pool. A field that is None follows the pool, or is measured."""

    name: str
    idle_seconds: Number | None = None
    pinned: bool = False
    footprint_bytes: Number | None = None
    versions: tuple[Positive, ...] = ()
    """Versions that get traffic. Without them and an alias, only the newest does."""
    alias: str | None = None


class Staging(Message):
    """A directory near the server, into which the policy copies a model's files before they are loaded."""

    folder: str  # Root of its volume. The server's repository is below it, as in `eviction_process`.
    size_bytes: Positive  # Limit of the files in it. The volume has a little more, for directories and links.


class Tuning(Message):
    """A pool's differences from the defaults in docs/eviction.md. None keeps a default."""

    tolerance_bytes: Number | None = None
    freeing_seconds: Amount | None = None
    residency_factor: Amount | None = None
    retry_most_seconds: Amount | None = None
    failures_most: Positive | None = None
    failure_backoff_seconds: Amount | None = None


class EvictionSettings(Message):
    """The whole file. Sizes are bytes, times are seconds."""

    version: Literal[1] = VERSION
    policy: str
    repository: str  # The mounted directory with the models, or the URL of object storage.
    staging: Staging | None = None  # With None, the server loads from `repository` itself, else from staged files.
    grpc_tls: bool = False  # Whether Triton's gRPC is encrypted. Its authority is `ca.crt` below `triton.TLS_ROOT`.
    capacity_bytes: Positive
    idle_seconds: Number
    lease_seconds: Positive
    wait_seconds: Number
    models: tuple[ManagedModel, ...] = ()
    tuning: Tuning = Tuning()
