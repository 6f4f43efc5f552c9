"""What the core remembers of a model."""

import math
from dataclasses import dataclass, field

from ..choosing import Candidate
from ..states import State
from .rules import ModelSpec
from .steps import EvictionReason, Ticket

UNSURE = "an earlier start"
"""Holder of the lease that every model found at a start is given, for nobody knows who uses it. No wire allows its
name."""


@dataclass(slots=True, eq=False)
class Lease:
    """Who holds a model, until when, and how many requests were under way when we last heard."""

    model: str
    holder: str
    ends: float
    in_flight: int
    serial: int = 0
    """Of its latest grant; no release that names an earlier one ends it."""


@dataclass(slots=True)
class Waiter:
    """A ticket; by `room_by` there must be room for its model, by the ticket's deadline a lease."""

    ticket: Ticket
    room_by: float = math.inf


@dataclass(slots=True)
class Work:
    """A load or an unload that is under way."""

    number: int
    since: float
    pieces: tuple[str, ...]
    """What a load brings, or an unload takes away: the model itself, and parts."""
    alone: bool = False
    """Nothing else may begin meanwhile."""
    clean: bool = False
    """Nothing else went on meanwhile, so far."""
    watched: bool = False
    """It was under way already when we came: nobody knows since when."""
    identity: tuple[str, tuple[int, ...]] = ("", ())


@dataclass(slots=True)
class Failures:
    """Failed loads in a row."""

    count: int = 0
    last: float = -math.inf
    why: str = ""
    not_before: float = -math.inf
    quarantined: bool = False


@dataclass(slots=True, eq=False)
class Model:
    """One model of the pool, or one that Triton has beyond it (`spec` is None)."""

    name: str
    spec: ModelSpec | None
    candidate: Candidate
    """How policies see it; kept through loads and unloads, since uses count on."""
    state: State = State.UNKNOWN
    why: str = ""
    """Of a wait, for people."""
    waiters: dict[int, Waiter] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    used_at: float = -math.inf
    """When a request last came, as far as is known, however long ago."""
    held: tuple[str, ...] = ()
    """Itself and its parts, from the beginning of a load until they are free."""
    at: float = math.inf
    """From when it may be evicted, as things stand; only of a resident one."""
    forced_at: float = math.inf
    """The same, when a pinned model or one with a warm window needs the room: only leases count then."""
    identity: tuple[str, tuple[int, ...]] = ("", ())
    """What was loaded: stamp and versions."""
    versions: tuple[int, ...] = ()
    load_seconds: float | None = None
    work: Work | None = None
    failures: Failures = field(default_factory=Failures)
    suspect: bool = False
    """Triton ended while it and others were loaded: it is loaded alone next time."""
    queued_at: float = 0.0
    room_made: bool = False
    """Others went for it: what they leave is its own until it is loaded."""
    room_kept_until: float = -math.inf
    """But not for longer than this when nobody waits for it."""
    due: float = 0.0
    """Of a queued one: when there may be room for it at the earliest."""
    asked_since: float = 0.0
    """Since when it has been asked for, and until when who was told busy may come back without losing his place."""
    asked_until: float = -math.inf
    drained_for: EvictionReason = "changed"
    unload_failures: int = 0
    unload_again: float = math.inf
    """When Triton is told again to unload it."""

    @property
    def wanted_identity(self) -> tuple[str, tuple[int, ...]]:
        """What a load would load now."""
        return (self.spec.stamp, self.spec.versions) if self.spec else ("", ())

    @property
    def pieces(self) -> tuple[str, ...]:
        """Itself and its parts, each once."""
        return tuple(dict.fromkeys((self.name, *(self.spec.parts if self.spec else ()))))

    @property
    def leased_until(self) -> float:
        """When its last lease ends, if none is renewed; long ago without one."""
        return max((lease.ends for lease in self.leases.values()), default=-math.inf)
