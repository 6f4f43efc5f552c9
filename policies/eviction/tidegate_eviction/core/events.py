"""What comes of a step of the core: commands to carry out, and events to tell of, with the answers among them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidegate_contracts import lease


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model (an ensemble brings its parts); report `load_ended(number, …)` once, however long it takes."""

    number: int
    model: str
    versions: tuple[int, ...] = ()
    """The versions to load; none: those that the model's own configuration chooses."""
    alone: bool = False
    """Nothing else is loaded or unloaded meanwhile, so that what memory grows by is its footprint: measure it."""
    watch: bool = False
    """The server is loading it already: do not order it, only watch until it has ended."""


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

EvictionReason = Literal["room", "pinned", "window", "changed", "removed", "overrun", "stranger", "vanished"]
"""Why a model is unloaded: room for another one (that is pinned, or has a warm window) · it changed, or was removed ·
more is charged than there is · the pool never had it · the server has it no longer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A ticket's answer: exactly one for each ticket that is not cancelled."""

    ticket: "Ticket"
    answer: lease.Granted | lease.Refusal


@dataclass(frozen=True, slots=True)
class LoadBegan:
    """A load was ordered, `queued_seconds` after the first caller that waits for it asked."""

    model: str
    needed_bytes: int
    waiters: int
    queued_seconds: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model is resident."""

    model: str
    seconds: float
    footprint_bytes: int
    """What is charged for it now, its parts included."""
    measured: Mapping[str, int]
    """Footprints that this load has shown, of the model and its parts: to be remembered."""
    waiters: int


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """A load failed; it is tried again after `retry_seconds` at the earliest, when the model is wanted."""

    model: str
    why: str
    failures: int
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A model is not tried any more until it changes, or is released by hand."""

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
class Freed:
    """Room is free again, `seconds` after the server said that the model is unloaded."""

    model: str
    bytes: int
    seconds: float


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

    reason: str


Event = (
    Answered | LoadBegan | Loaded | LoadFailed | Quarantined | Allowed | Evicted | UnloadFailed | Freed | Leaked
    | Overrun | PolicyFailed | Recycling
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
