"""What an eviction policy is told about its pool: `eviction.json`, which it re-reads when it changes.

Field names on the wire are camelCase. Unknown fields are refused.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from .message import Message

VERSION: Final = 1
MODELS_SHARE: Final = 9, 10
"""Share of a slice that models may take where no capacity is said; the rest is CUDA's context and Triton's buffers."""


class ManagedModel(Message):
    """One model of the pool; what is None follows the pool, or is measured."""

    name: str
    idle_seconds: int | None = None
    pinned: bool = False
    footprint_bytes: int | None = None
    versions: tuple[int, ...] = ()
    """Versions that get traffic; the newest alone when neither they nor an alias are said."""
    alias: str | None = None


class WarmWindow(Message):
    """Models that are resident from `opens` (cron, in `time_zone`) for `duration_seconds`."""

    name: str
    opens: str
    duration_seconds: int
    time_zone: str
    models: tuple[str, ...]


class Tuning(Message):
    """What a pool does otherwise than docs/eviction.md says it does by default; what is None stays as it says."""

    loads_at_once: Annotated[int, Field(ge=1)] | None = None
    tolerance_bytes: Annotated[int, Field(ge=0)] | None = None
    freeing_seconds: Annotated[float, Field(ge=0)] | None = None
    leak_budget_bytes: Annotated[int, Field(ge=0)] | None = None
    residency_factor: Annotated[float, Field(ge=0)] | None = None
    residency_most_seconds: Annotated[float, Field(ge=0)] | None = None
    retry_most_seconds: Annotated[float, Field(ge=0)] | None = None
    failures_most: Annotated[int, Field(ge=1)] | None = None
    failure_backoff_seconds: Annotated[float, Field(ge=0)] | None = None
    failure_memory_seconds: Annotated[float, Field(ge=0)] | None = None
    overdue_seconds: Annotated[float, Field(ge=0)] | None = None


class EvictionSettings(Message):
    """The whole file. Sizes are bytes, times are seconds."""

    version: Literal[1] = VERSION
    policy: str
    repository: str
    """Where the models lie: the folder that is mounted, or the URL of object storage."""
    grpc_tls: bool = False
    """Whether Triton's gRPC is encrypted; `ca.crt` below `triton.TLS_ROOT` vouches for it then."""
    capacity_bytes: int
    idle_seconds: int
    lease_seconds: int
    wait_seconds: int
    models: tuple[ManagedModel, ...] = ()
    warm_windows: tuple[WarmWindow, ...] = ()
    tuning: Tuning = Tuning()
