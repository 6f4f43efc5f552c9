"""What the core is told. Footprints are bytes, times are seconds of the monotonic clock that `now` is of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..policies.policy import Policy


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What is known of a model before it is loaded."""

    name: str
    footprint_bytes: int | None = None
    estimate_bytes: int | None = None
    """Without its parts: measured at an earlier load, or estimated from its files; `estimate_from` says which."""
    estimate_from: Literal["measured", "estimated", "unknown"] = "unknown"
    idle_seconds: float | None = None
    pinned: bool = False
    versions: tuple[int, ...] = ()
    """The active ones, which a load loads; none: what the server would load by itself."""
    parts: tuple[str, ...] = ()
    """The composing models of an ensemble: loaded with it, accounted once, unloaded when nothing needs them."""
    stamp: str = ""
    """Fingerprint of its content and its parts': a new one ends a quarantine, and has a resident model unloaded."""
    callable: bool = True
    """Whether leases on it are granted; not on one that is only a part of others."""
    load_seconds: float | None = None
    """How long a load took when it was last measured, if ever; the core's own measurement goes before it."""


@dataclass(frozen=True, slots=True)
class WarmWindow:
    """Models that are to be resident from one point in time to another; they are loaded before it opens."""

    name: str
    models: tuple[str, ...]
    opens: float
    closes: float


@dataclass(frozen=True)
class PoolRules:
    """How a pool is run. docs/eviction.md explains the defaults."""

    capacity_bytes: int
    policy: Policy
    idle_seconds: float
    lease_seconds: float
    wait_seconds: float
    loads_at_once: int = 4
    measures: bool = True
    """Whether readings of memory come: without them, room is free when the server says `unloaded`."""
    alone_seconds: float = 120.0
    """How long a load that is to be measured keeps others from being loaded or unloaded."""
    tolerance_bytes: int = 64 << 20
    """What a reading may be off by: memory that is back but for this is back."""
    freeing_seconds: float = 30.0
    leak_budget_bytes: int | None = None
    """None: a tenth of the capacity."""
    residency_factor: float = 1.0
    residency_most_seconds: float = 600.0
    retry_most_seconds: float = 60.0
    failures_most: int = 3
    failure_backoff_seconds: float = 5.0
    failure_memory_seconds: float = 900.0
    overdue_seconds: float = 10.0
    unload_tries: int = 3
    default_load_seconds: float = 30.0
    """Assumed duration of a load of which nothing is known: for `retry_after`, and to be early for a window."""

    @property
    def leak_budget(self) -> int:
        """Bytes that may leak before the pod asks to be recycled."""
        return self.capacity_bytes // 10 if self.leak_budget_bytes is None else self.leak_budget_bytes


@dataclass(frozen=True, slots=True)
class ServerInventory:
    """What a server has loaded at the start of the policy, or when it is back."""

    resident: tuple[str, ...] = ()
    """Models that are ready, parts of ensembles too."""
    loading: tuple[str, ...] = ()
    """Models that are being loaded: watched, not ordered again."""
    unloading: tuple[str, ...] = ()
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of resident ones, as far as they are known: a model with others than the settings say is drained and unloaded."""
    lease_seconds: float = 0.0
    """The longest lease that was granted and may live; the pool's own counts if it is longer."""
    same: bool = False
    """Whether only the connection to the server broke: readings of before and after can be compared."""
