"""What the core is told, and what comes of a step: commands to carry out, and events to tell of, answers among them.

Footprints are bytes, times are seconds of the monotonic clock that `now` is of.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidegate_contracts import lease

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
    versions: tuple[int, ...] = ()  # The active ones, which a load loads; none: what the server would load by itself.
    parts: tuple[str, ...] = ()
    """The composing models of an ensemble: loaded with it, accounted once, unloaded when nothing needs them."""
    stamp: str = ""
    """Fingerprint of its content and its parts': a new one ends a quarantine, and has a resident model unloaded."""
    callable: bool = True  # Whether leases on it are granted; not on one that is only a part of others.
    problem: str = ""
    """Why no load of it can succeed, as its files show: it counts as a load that failed, and no model goes for it."""
    load_seconds: float | None = None
    """How long a load took when it was last measured, if ever; the core's own measurement goes before it."""


@dataclass(frozen=True)
class PoolSettings:
    """How a pool is run. docs/eviction.md explains the defaults."""

    capacity_bytes: int
    policy: Policy
    idle_seconds: float
    lease_seconds: float
    wait_seconds: float
    measures: bool = True  # Whether memory is read: else room is free when the server says `unloaded`.
    first_load_margin: float = 0.25  # Share of its size that a load of what was never measured is charged beside.
    loads_at_once: int = 4
    alone_seconds: float = 120.0  # How long a load that is to be measured keeps others from being loaded or unloaded.
    tolerance_bytes: int = 64 << 20  # What a reading may be off by: memory that is back but for this is back.
    freeing_seconds: float = 30.0
    leak_budget_bytes: int | None = None  # None: a tenth of the capacity.
    residency_factor: float = 1.0
    residency_most_seconds: float = 600.0
    retry_most_seconds: float = 60.0
    failures_most: int = 3
    failure_backoff_seconds: float = 5.0
    failure_memory_seconds: float = 900.0
    overdue_seconds: float = 10.0
    unload_tries: int = 3
    default_load_seconds: float = 30.0
    """Assumed duration of a load of which nothing is known: for `retry_after`."""

    @property
    def leak_budget(self) -> int:
        """Bytes that may leak before the pod asks to be recycled."""
        return self.capacity_bytes // 10 if self.leak_budget_bytes is None else self.leak_budget_bytes


@dataclass(frozen=True, slots=True)
class ServerInventory:
    """What a server has loaded at the start of the policy, or when it is back."""

    resident: tuple[str, ...] = ()  # Models that are ready, parts of ensembles too.
    loading: tuple[str, ...] = ()  # Models that are being loaded: watched, not ordered again.
    unloading: tuple[str, ...] = ()
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of resident ones, as far as they are known: a model with others than the settings say is drained and unloaded."""
    same: bool = False  # Whether only the connection to the server broke: readings of before and after can be compared.


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model (an ensemble brings its parts); report `load_ended(number, …)` once, however long it takes."""

    number: int
    model: str
    versions: tuple[int, ...] = ()  # The versions to load; none: those that the model's own configuration chooses.
    alone: bool = False
    """Nothing else is loaded or unloaded meanwhile, so that what memory grows by is its footprint: measure it."""
    watch: bool = False  # The server is loading it already: do not order it, only watch until it has ended.


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload these, in this order and that of commands; report `unload_ended(number, …)` when none is loaded."""

    number: int
    model: str
    names: tuple[str, ...]
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Recycle:
    """Restart the server: no lease lives any more. Report `server_lost` and then `recover`."""

    reason: str


Command = Load | Unload | Recycle

EvictionReason = Literal["room", "pinned", "ahead", "changed", "removed", "overrun", "stranger", "vanished"]
"""Why a model is unloaded: room for another one (that is pinned, or is called soon) · it changed, or
was removed · more is charged than there is · the pool never had it · the server has it no longer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A ticket's answer: exactly one for each ticket that is not cancelled."""

    ticket: "Ticket"
    answer: lease.Granted | lease.Refusal


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model is resident."""

    model: str
    seconds: float
    footprint_bytes: int  # What is charged for it now, its parts included.
    measured: Mapping[str, int]  # Footprints that this load has shown, of the model and its parts: to be remembered.
    waiters: int
    copied_seconds: float = 0.0  # Of its seconds, those in which files were copied near the server.
    queued_seconds: float = 0.0  # Before them: those that the first caller who waits for it waited for room.


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """A load failed; it is tried again after `retry_seconds` at the earliest, when the model is wanted."""

    model: str
    why: str
    failures: int
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A model is not loaded again until it changes, or the policy restarts."""

    model: str
    why: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """A model is out of quarantine."""

    model: str
    why: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """The unload of a model begins; `wanted_by` names the model that its room is for, if there is one."""

    model: str
    reason: EvictionReason
    wanted_by: str
    idle_seconds: float
    footprint_bytes: int


@dataclass(frozen=True, slots=True)
class UnloadFailed:
    """An unload failed; it is ordered again."""

    model: str
    why: str
    failures: int


@dataclass(frozen=True, slots=True)
class Leaked:
    """Memory that did not come back is charged as leaked; with negative bytes, and no model: it came back after all."""

    model: str
    bytes: int
    leaked_bytes: int


@dataclass(frozen=True, slots=True)
class Overrun:
    """More is charged than the capacity, by so many bytes: a model is larger than thought, or the capacity shrank."""

    bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """A policy raised an exception; the least recently used models are evicted instead."""

    policy: str
    why: str


@dataclass(frozen=True, slots=True)
class Recycling:
    """No new leases: the server is to be restarted once the last one has ended."""

    why: str


Event = (
    Answered | Loaded | LoadFailed | Quarantined | Allowed | Evicted | UnloadFailed | Leaked | Overrun | PolicyFailed
    | Recycling
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ticket:
    """A caller that waits for a lease; an `Answered` follows by `deadline` at the latest, if `tick` is called then."""

    number: int
    model: str
    holder: str
    asked: float
    deadline: float


@dataclass(slots=True)
class Step:
    """What comes of telling the core something, each list in order."""

    commands: list[Command] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
