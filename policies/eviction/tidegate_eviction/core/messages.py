"""The core's input, and the result of a step: commands to carry out, and events, among them the responses to callers.

Footprints are bytes. Times are seconds of the same monotonic clock as `now`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidegate_contracts import lease

from ..policies.policy import Policy


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model before it is loaded."""

    name: str
    footprint_bytes: int | None = None
    estimate_bytes: int | None = None
    """Without its parts: measured at an earlier load, or estimated from its files (see `estimate_from`)."""
    estimate_from: Literal["measured", "estimated", "unknown"] = "unknown"
    idle_seconds: float | None = None
    pinned: bool = False
    versions: tuple[int, ...] = ()  # The versions to load. Empty: the server chooses.
    parts: tuple[str, ...] = ()
    """The composing models of an ensemble: loaded with it, charged once, unloaded when no model needs them."""
    stamp: str = ""
    """Fingerprint of its content and its parts'. A new one ends a quarantine, and drains a resident model."""
    callable: bool = True  # Whether leases are granted. False for a model that is only a part of others.
    problem: str = ""
    """Why no load can succeed, from its files. It counts as a failed load, and no model is evicted for it."""
    load_seconds: float | None = None
    """The last measured duration of a load, if any. The core's own measurement has precedence."""


@dataclass(frozen=True)
class PoolSettings:
    """The settings of a pool. INTERNALS.md explains the defaults."""

    capacity_bytes: int
    policy: Policy
    idle_seconds: float
    lease_seconds: float
    wait_seconds: float
    measures: bool = True  # Whether memory is read. If not, memory counts as free when the server reports `unloaded`.
    first_load_margin: float = 0.25  # The share of its size that a first load is charged in addition.
    loads_at_once: int = 4
    alone_seconds: float = 120.0  # The longest time that a measured load blocks others.
    tolerance_bytes: int = 64 << 20  # The error of a reading: freed memory may be this much short.
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
    """The assumed duration of a load without any measurement, for `retry_after`."""

    @property
    def leak_budget(self) -> int:
        """The bytes that may leak before the server is restarted."""
        return self.capacity_bytes // 10 if self.leak_budget_bytes is None else self.leak_budget_bytes


@dataclass(frozen=True, slots=True)
class ServerInventory:
    """The models that the server has loaded at the start of the policy, or after a reconnection."""

    resident: tuple[str, ...] = ()  # Ready models, including parts of ensembles.
    loading: tuple[str, ...] = ()  # Models that are loading. They are watched, not ordered again.
    unloading: tuple[str, ...] = ()
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The versions of resident models, if known. A model with other versions than in the settings drains."""
    same: bool = False  # Whether only the connection broke. Then readings before and after are comparable.


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model and its parts. Report `load_ended(number, …)` once, however long it takes."""

    number: int
    model: str
    versions: tuple[int, ...] = ()  # Empty: the versions that the model's own configuration selects.
    alone: bool = False
    """No other model is loaded or unloaded meanwhile, so the growth of memory is the footprint: measure it."""
    watch: bool = False  # The server is loading it already: only watch until it ends.


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload these models in this order. Report `unload_ended(number, …)` when none of them is loaded."""

    number: int
    model: str
    names: tuple[str, ...]
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Recycle:
    """Restart the server: no lease is live any more. Report `server_lost` and then `recover`."""

    reason: str


Command = Load | Unload | Recycle

EvictionReason = Literal["room", "pinned", "ahead", "changed", "removed", "overrun", "stranger", "vanished"]
"""Why a model is unloaded. `room`, `pinned`, `ahead`: memory for a model that is called, pinned, or expected.
`changed`, `removed`: its files or the settings changed. `overrun`: the charges exceed the capacity. `stranger`: the
pool never had it. `vanished`: the server dropped it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to a ticket: exactly one for each ticket that is not cancelled."""

    ticket: "Ticket"
    answer: lease.Granted | lease.Refusal


@dataclass(frozen=True, slots=True)
class Loaded:
    """A load has succeeded."""

    model: str
    seconds: float
    footprint_bytes: int  # The charge for the model and its parts.
    measured: Mapping[str, int]  # Measured footprints of the model and its parts.
    waiters: int
    copied_seconds: float = 0.0  # The part of `seconds` in which files were copied to the cache.
    queued_seconds: float = 0.0  # How long the first waiting caller had waited before the load.


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """A load failed. If the model is still wanted, it is retried after `retry_seconds` at the earliest."""

    model: str
    why: str
    failures: int
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A model is not loaded until it changes or the policy restarts."""

    model: str
    why: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """A model is no longer quarantined."""

    model: str
    why: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """The unload of a model begins. `wanted_by` names the model that needs the memory, if any."""

    model: str
    reason: EvictionReason
    wanted_by: str
    idle_seconds: float
    footprint_bytes: int


@dataclass(frozen=True, slots=True)
class UnloadFailed:
    """An unload failed. It is ordered again."""

    model: str
    why: str
    failures: int


@dataclass(frozen=True, slots=True)
class Leaked:
    """Memory that was not freed is charged as leaked. With negative bytes and no model, it was freed after all."""

    model: str
    bytes: int
    leaked_bytes: int


@dataclass(frozen=True, slots=True)
class Overrun:
    """The charges exceed the capacity by `bytes`: a model is larger than expected, or the capacity was lowered."""

    bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """A policy raised an exception. The least recently used models are evicted instead."""

    policy: str
    why: str


@dataclass(frozen=True, slots=True)
class Recycling:
    """No new leases: the server will be restarted after the last lease."""

    why: str


Event = (
    Answered | Loaded | LoadFailed | Quarantined | Allowed | Evicted | UnloadFailed | Leaked | Overrun | PolicyFailed
    | Recycling
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ticket:
    """A caller that waits for a lease. An `Answered` follows by `deadline` at the latest, if `tick` is called then."""

    number: int
    model: str
    holder: str
    since: float
    deadline: float


@dataclass(slots=True)
class Step:
    """The commands and events of one step, each list in order."""

    commands: list[Command] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
