"""What an eviction policy is told about its pool: `eviction.json`, which it re-reads when it changes."""

from typing import Annotated, Final, Literal

from pydantic import Field

from .message import MOST_NUMBER, Message

VERSION: Final = 1
MODELS_SHARE: Final = 9, 10
"""Share of a slice that models may take where no capacity is said; the rest is for CUDA's context, and buffers of the
server."""
STAGED_SHARE: Final = 15, 16
"""Share of a volume for staged files that the files may take; the rest is for folders, links and the file system."""
DISK_FACTOR: Final = 1.25
"""Bytes in memory for each byte on disk, where nothing was measured or declared (ModelMesh's figure)."""
Number = Annotated[int, Field(ge=0, le=MOST_NUMBER)]
Positive = Annotated[int, Field(ge=1, le=MOST_NUMBER)]
Amount = Annotated[float, Field(ge=0, le=MOST_NUMBER)]


class ManagedModel(Message):
    """One model of the pool; what is None follows the pool, or is measured."""

    name: str
    idle_seconds: Number | None = None
    pinned: bool = False
    footprint_bytes: Number | None = None
    versions: tuple[Positive, ...] = ()
    """Versions that get traffic; the newest alone when neither they nor an alias are said."""
    alias: str | None = None


class Staging(Message):
    """A folder near the server, into which the policy copies a model's files before they are loaded."""

    folder: str  # Root of its volume; the server's repository lies below it, as `eviction_process` says.
    size_bytes: Positive  # What files in it may take; the volume has a little more, for folders and links.


class Tuning(Message):
    """What a pool does otherwise than docs/eviction.md says it does by default; what is None stays as it says."""

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
    repository: str  # Where the models lie: the folder that is mounted, or the URL of object storage.
    staging: Staging | None = None  # None: the server loads from `repository` itself, else from what is staged of it.
    grpc_tls: bool = False  # Whether Triton's gRPC is encrypted; `ca.crt` below `triton.TLS_ROOT` vouches for it then.
    capacity_bytes: Positive
    idle_seconds: Number
    lease_seconds: Positive
    wait_seconds: Number
    models: tuple[ManagedModel, ...] = ()
    tuning: Tuning = Tuning()
