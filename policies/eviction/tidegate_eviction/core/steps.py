"""What the core hands back: commands to carry out, events to tell of, answers to give."""

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
    """For a `specific` version policy; none: as the model's own configuration says."""
    needed_bytes: int = 0
    """Room that is taken for it."""
    alone: bool = False
    """Nothing else is loaded or unloaded meanwhile, so that what memory grows by is its footprint: measure it."""
    watch: bool = False
    """It is under way at Triton already: do not issue it, only watch the index until it has ended."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload these, in this order, each by its name; report `unload_ended(number, …)` when the index says `unloaded` of
    all of them. Of several commands the earlier one begins first: an ensemble goes before its parts.
    """

    number: int
    model: str
    names: tuple[str, ...]
    """The model, and parts that nothing needs any more."""
    watch: bool = False
    """It is under way at Triton already."""


@dataclass(frozen=True, slots=True)
class Recycle:
    """Restart Triton: no lease lives any more. Report `triton_lost` and `triton_back`."""

    reason: str


Command = Load | Unload | Recycle

EvictionReason = Literal["room", "pinned", "window", "changed", "removed", "overrun", "stranger", "vanished"]
"""Why a model goes: room for another one (that is pinned, or has a warm window) · it changed, or was taken from the
pool · it turned out larger than thought, or the capacity shrank · the pool never had it · Triton has it no
longer, though nobody here unloaded it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A ticket's answer: exactly one for each ticket that is not cancelled."""

    ticket: "Ticket"
    answer: lease.Granted | lease.Refusal


@dataclass(frozen=True, slots=True)
class LoadBegan:
    """A load was issued."""

    model: str
    needed_bytes: int
    waiters: int
    queued_seconds: float
    """How long the first of them has waited."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model is resident."""

    model: str
    seconds: float
    footprint_bytes: int
    """What is charged for it now, its parts included."""
    measured: Mapping[str, int]
    """Footprints that were learned by this load, of the model and its parts: to be remembered."""
    waiters: int


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """A load failed, and is tried again in `retry_seconds` at the earliest, when somebody wants it."""

    model: str
    why: str
    failures: int
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A model is not tried any more, until it changes or somebody asks."""

    model: str
    why: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """A model is out of quarantine."""

    model: str
    why: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """The unload of a model begins."""

    model: str
    reason: EvictionReason
    wanted_by: str
    """The model whose room it is to be; empty without one."""
    idle_seconds: float
    footprint_bytes: int


@dataclass(frozen=True, slots=True)
class UnloadFailed:
    """Triton did not unload it; it is told again."""

    model: str
    why: str
    failures: int


@dataclass(frozen=True, slots=True)
class Freed:
    """Room is free again."""

    model: str
    bytes: int
    seconds: float
    """Since Triton said that it is unloaded."""


@dataclass(frozen=True, slots=True)
class Leaked:
    """Memory that did not come back is charged to the capacity; negative: it came back after all."""

    model: str
    """Whose unload it was; empty when it came back."""
    bytes: int
    leaked_bytes: int
    """All that has leaked."""


@dataclass(frozen=True, slots=True)
class Overrun:
    """More is charged than the capacity: something turned out larger than thought, or the capacity shrank."""

    bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """A policy raised an exception; the least recently used went instead."""

    policy: str
    why: str


@dataclass(frozen=True, slots=True)
class Recycling:
    """No new leases: Triton is to be restarted once the last one has ended."""

    reason: str


Event = (
    Answered | LoadBegan | Loaded | LoadFailed | Quarantined | Allowed | Evicted | UnloadFailed | Freed | Leaked
    | Overrun | PolicyFailed | Recycling
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ticket:
    """Somebody who waits for a lease; an `Answered` follows by `deadline` at the latest, if `tick` is called then."""

    number: int
    model: str
    holder: str
    asked: float
    deadline: float


@dataclass(slots=True)
class Step:
    """What comes of telling the core something: in this order."""

    commands: list[Command] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
