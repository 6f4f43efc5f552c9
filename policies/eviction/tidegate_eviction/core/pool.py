"""The state that all parts of the core share: the models of a pool, where each of them is, and what is due when."""

import heapq
import itertools
import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate_contracts.lease import MOST_BUSY, RENEWALS_PER_LEASE, State

from ..policies import Candidate
from .accounting import CapacityLedger, FootprintTable, MemoryEstimate
from .messages import Command, Event, EvictionReason, ModelSpec, PoolSettings, Recycling, Step, Ticket
from .states import AFTER, HOLDS_ROOM, Cause

LOOK_SECONDS = 1.0  # Seconds between two looks of a proxy at its leases: it gives back those that it does not use.
_IDLE_LOADS = 4  # Idle for so many times what its load took, a model may go where evictions break even.
_TIMES = 32  # So many of the last loads and unloads say what they usually take.
UNSURE = "an earlier start"
"""Holder of the lease that every model found at a start is given; no name on the wire can be this one."""
RETURNING = "callers who are due to return"
"""Holder of the lease that a model has after its load, until these callers should have come; nor can it be this one."""
NO_ROOM = "there is no room: all that is resident is in use, or was too lately"
LEAKED = "it does not fit beside what has leaked"
BARRED = "another model has waited for room for longer"
WANTS_ROOM = frozenset({NO_ROOM, LEAKED, BARRED})
"""Why a queued model is not loaded, where that is for want of room."""


@dataclass(slots=True, eq=False)
class Lease:
    """A holder's lease on a model, and how many requests were in flight at the last renewal."""

    model: str
    holder: str
    ends: float
    in_flight: int
    serial: int = 0  # Of its latest grant; a release that names an earlier one does not end it.
    uses: int = 0  # What grants have counted since its holder last said what it did; 0: it has said so since the last.


@dataclass(slots=True)
class Waiter:
    """A ticket that waits; by `room_by` there must be room for its model, by the ticket's deadline a lease."""

    ticket: Ticket
    room_by: float = math.inf
    is_back: bool = False  # Whether its caller came when a refused one was due.


@dataclass(slots=True, frozen=True)
class Operation:
    """A load or an unload that is under way."""

    number: int = 0
    since: float = 0.0
    pieces: tuple[str, ...] = ()  # What a load brings, or an unload takes away: the model itself, and parts.
    alone: bool = False
    clean: bool = False  # Nothing else went on meanwhile, so far.
    watched: bool = False  # It was under way already at the start, so it is not known since when.
    identity: tuple[str, tuple[int, ...]] = ("", ())
    queued: float = 0.0  # Seconds that the first caller who waits for a load waited before it.


NO_OPERATION = Operation()  # Of a model that is neither being loaded nor unloaded.


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
    """One model of the pool, or one that the server has beyond it (`spec` is None)."""

    name: str
    spec: ModelSpec | None
    candidate: Candidate  # How policies see it; kept while the model is cold, for its uses are counted on.
    state: State = State.UNKNOWN
    since: float = 0.0  # When it came into this state.
    why: str = ""
    waiters: dict[int, Waiter] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    used_at: float = -math.inf  # When a request last came, as far as is known, however long ago.
    held: tuple[str, ...] = ()  # Itself and its parts, from the beginning of a load until their memory is free.
    evictable_at: float = math.inf  # From when a resident one may be evicted, as things stand.
    evictable_if_forced_at: float = math.inf  # The same for a pinned model: only leases count.
    identity: tuple[str, tuple[int, ...]] = ("", ())
    versions: tuple[int, ...] = ()
    load_seconds: float | None = None
    operation: Operation = NO_OPERATION
    failures: Failures = field(default_factory=Failures)
    refused: float = 0.0  # Callers refused since it was last resident, faded as of `refused_at`.
    refused_at: float = 0.0  # When the last of them was refused.
    busy_at: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_BUSY))  # When any were told so, lately.
    no_room: tuple[float, float] = (-math.inf, -math.inf)  # When the first and last were, without a load since.
    suspect: bool = False  # The server ended while several were being loaded: it is loaded alone next time.
    queued_at: float = 0.0
    room_made: bool = False  # Room is reserved for it until it is loaded: others were evicted for it, as a rule.
    room_kept_until: float = -math.inf  # But not for longer than this when no caller waits for it.
    due: float = 0.0  # Of a queued one: when there may be room for it at the earliest.
    asked_since: float = 0.0
    """When its first waiting caller asked; when the first refused caller is due."""
    back_at: float = -math.inf
    returns: list[tuple[float, float]] = field(default_factory=list)
    """Periods in which refused callers are due; overlapping ones are merged."""
    kept_until: float = -math.inf  # Until when callers that it refused while loading are due.
    burst_at: float = -math.inf  # When the last burst of calls began.
    gaps: tuple[float, ...] = ()  # Seconds between the last bursts, the latest last.
    expected_until: float = -math.inf  # Until when it is kept for a call that a timer is to make.
    drained_for: EvictionReason = "changed"
    unload_failures: int = 0
    unload_again: float = math.inf

    @property
    def wanted_identity(self) -> tuple[str, tuple[int, ...]]:
        """What a load would load now."""
        return (self.spec.stamp, self.spec.versions) if self.spec else ("", ())

    @property
    def pieces(self) -> tuple[str, ...]:
        """Names of the model and its parts, each once."""
        if self.spec is None or not self.spec.parts:
            return (self.name,)
        return tuple(dict.fromkeys((self.name, *self.spec.parts)))

    @property
    def asked_until(self) -> float:
        """Until when a refused caller is due."""
        return max((until for _, until in self.returns), default=-math.inf)

    @property
    def pinned(self) -> bool:
        """Whether the model is never evicted."""
        return self.spec is not None and self.spec.pinned

    @property
    def leased_until(self) -> float:
        """When its last lease ends if none is renewed; minus infinity without one."""
        return max((lease.ends for lease in self.leases.values()), default=-math.inf)


class Pool:
    """Models by name and by state, their memory, the settings, the time, and the step that is being taken."""

    def __init__(self, settings: PoolSettings, now: float) -> None:
        self.settings = settings
        self.now = now
        self.specs: Mapping[str, ModelSpec] = {}
        self.footprints = FootprintTable()
        self.ledger = CapacityLedger()
        self.memory = MemoryEstimate()
        self.before = MemoryEstimate()  # What was known of the memory of the server that was lost.
        self.models: dict[str, Model] = {}
        self.by_state: dict[State, dict[str, Model]] = {state: {} for state in State}
        self.loads: dict[int, Model] = {}
        self.unloads: dict[int, Model] = {}
        self.ready = False  # The server answers, and what it has loaded is known.
        self.leaving = False
        self.recycling = ""
        self.restart_ordered = False
        self.pressed_until = -math.inf  # Until when a caller wants room that there is none of.
        self.dirty = True  # Something happened that may let a load or an unload begin.
        self.plan_at = math.inf
        self.expected: list[tuple[float, str, float]] = []
        """A heap of loads ahead of calls: when each begins, of which model, and after which burst it was foreseen."""
        self.step = Step()
        self.numbers = itertools.count(1)
        self.serial = 0
        self.pinned: tuple[str, ...] = ()
        self._pinned_pieces: frozenset[str] = frozenset()
        self.told: dict[str, None] = {}  # Models whose callers were told to come back.
        self.load_times: deque[float] = deque(maxlen=_TIMES)
        self.unload_times: deque[float] = deque(maxlen=_TIMES)
        self._loads_took: float | None = None  # What loads took before the start, as specs say.
        self.longest_lease = 0.0  # The longest that was granted since the start: it may still live.
        self._alarms: list[tuple[float, int, Lease | Waiter]] = []

    @property
    def accepts(self) -> bool:
        """Whether new leases are granted."""
        return not (self.leaving or self.recycling)

    def tell(self, event: Event) -> None:
        """Add an event to this step."""
        self.step.events.append(event)

    def order(self, command: Command) -> None:
        """Add a command to this step."""
        self.step.commands.append(command)

    def alarm(self, at: float, whom: Lease | Waiter) -> None:
        """Have a lease or a waiter looked at when it may have ended."""
        heapq.heappush(self._alarms, (at, next(self.numbers), whom))

    def due(self) -> Sequence[Lease | Waiter]:
        """Return the leases and waiters whose time has come, which are looked at no more."""
        found: list[Lease | Waiter] = []
        while self._alarms and self._alarms[0][0] <= self.now:
            found.append(heapq.heappop(self._alarms)[2])
        return found

    def next_deadline(self) -> float:
        """Return when something is due next."""
        return min(self.plan_at, self.expected_at, self._alarms[0][0] if self._alarms else math.inf)

    @property
    def expected_at(self) -> float:
        """When a model may next be loaded ahead of a call."""
        return self.expected[0][0] if self.expected else math.inf

    def add(self, name: str, spec: ModelSpec | None) -> Model:
        """Add a model, cold."""
        candidate = Candidate(name, 0, last_use=-math.inf, resident_since=self.now, load_seconds=0.0, gap_seconds=0.0)
        model = self.models[name] = Model(name, spec, candidate)
        self.move(model, "added")
        return model

    def move(self, model: Model, cause: Cause) -> None:
        """Change a model's state; KeyError where `states` has no such transition."""
        after = AFTER[model.state, cause]
        self.by_state[model.state].pop(model.name, None)
        model.state, model.since, model.why = after, self.now, ""
        if after is State.UNKNOWN:
            del self.models[model.name]
        else:
            self.by_state[after][model.name] = model
        self.dirty = True

    def holding(self) -> Iterator[Model]:
        """Yield the models that take room."""
        for state in HOLDS_ROOM:
            yield from self.by_state[state].values()

    def demanded(self, model: Model) -> bool:
        """Tell whether a model is to be resident without being asked for."""
        return model.spec is not None and model.pinned and not (model.spec.problem or model.failures.quarantined)

    def recycle(self, reason: str) -> None:
        """Have the server restarted once no lease lives."""
        if not self.recycling:
            self.recycling = reason
            self.dirty = True
            self.tell(Recycling(reason))

    def configure(self, settings: PoolSettings, specs: Mapping[str, ModelSpec]) -> None:
        """Take other settings over."""
        self.settings, self.specs = settings, specs
        self.longest_lease = max(self.longest_lease, settings.lease_seconds)
        took = [spec.load_seconds for spec in specs.values() if spec.load_seconds is not None]
        self._loads_took = statistics.median(took) if took else None
        self.pinned = tuple(name for name, spec in specs.items() if spec.pinned)
        self._pinned_pieces = frozenset(piece for name in self.pinned for piece in (name, *specs[name].parts))
        self.footprints.configure(specs, settings.capacity_bytes, self._pinned_pieces)

    def needed(self, model: Model) -> int:
        """Return the bytes that a load of it would have to be charged."""
        footprints, charges = self.footprints, self.ledger.charges
        return sum([footprints.of(piece) for piece in model.pieces if piece not in charges])

    def margin(self, model: Model) -> int:
        """Return the bytes that a load of it is to be charged beside, for what was never measured."""
        footprints, share = self.footprints, self.settings.first_load_margin if self.settings.measures else 0.0
        new = [piece for piece in model.pieces if piece not in self.ledger.charges]
        return int(share * sum(footprints.of(piece) for piece in new if footprints.measured(piece) is None))

    def whole(self, model: Model) -> int:
        """Return the bytes of it with all its parts."""
        return sum(map(self.footprints.of, model.pieces))

    def limit(self, model: Model) -> int:
        """Return how many bytes it may have at most: what pinned models take is theirs."""
        if model.pinned:
            return self.settings.capacity_bytes
        return self.settings.capacity_bytes - sum(map(self.footprints.of, self._pinned_pieces.difference(model.pieces)))

    @property
    def free(self) -> int:
        """Bytes that are not charged; negative while more is charged than there is."""
        return self.settings.capacity_bytes - self.memory.leaked - self.ledger.total

    def over(self) -> int:
        """Return the bytes that will be charged beyond the capacity when all is freed that is to be; margins yield."""
        if self.free + self.ledger.pending < 0:
            self.ledger.settle(self.ledger.margins)
        return -self.free - self.ledger.pending

    def load_measured(self, model: Model) -> float | None:
        """Return how many seconds its last load took, here or before the start; None if that is not known."""
        return model.load_seconds if model.load_seconds is not None or model.spec is None else model.spec.load_seconds

    def load_cost(self, model: Model) -> float:
        """Return what a load of it may take where its files have left the staging tier again."""
        return self.load_estimate(model) + model.candidate.copied_seconds

    def load_estimate(self, model: Model) -> float:
        """Return how many seconds a load of it takes, as far as is known."""
        known = self.load_measured(model)
        return self.settings.default_load_seconds if known is None else known

    def loads_take(self) -> float | None:
        """Return how many seconds loads take in this pool, by the last ones; None if none was measured."""
        return statistics.median(self.load_times) if self.load_times else self._loads_took

    def unloads_take(self) -> float:
        """Return how many seconds it takes from the order of an unload until memory is back, by those so far."""
        return statistics.median(self.unload_times) if self.unload_times else 0.0

    def refused_busy(self) -> list[Model]:
        """Return the models that nobody waits for, whose callers were told when to come back, and may still do so."""
        for name in list(self.told):
            if name not in self.models or self.models[name].asked_until < self.now:
                del self.told[name]
        models = [self.models[name] for name in self.told]
        return [each for each in models if each.state in (State.COLD, State.QUEUED) and not each.waiters]

    def idle_limit(self, model: Model) -> float:
        """Return how many seconds a model must have been idle."""
        if self.breaks_even(model):
            return min(self.settings.idle_seconds, _IDLE_LOADS * self.load_cost(model))
        own = model.spec.idle_seconds if model.spec else 0.0
        return self.settings.idle_seconds if own is None else own

    def breaks_even(self, model: Model) -> bool:
        """Tell whether a model may go before its time where that pays: not one with an idle time of its own."""
        return self.settings.policy.breaks_even and model.spec is not None and model.spec.idle_seconds is None

    def lease_limit(self, model: Model) -> float:
        """Return after how many idle seconds a proxy's lease on it is not renewed while room is wanted."""
        return LOOK_SECONDS if self.breaks_even(model) else self.idle_limit(model)

    def given_back_after(self, limit: float) -> float:
        """Return after how many seconds without a request, at most, a proxy's lease ends while room is wanted: it gives
        back what it has not used for a whole lease, and loses at a renewal what has been idle for its limit."""
        lease = self.settings.lease_seconds
        return min(lease, limit + lease / RENEWALS_PER_LEASE) + LOOK_SECONDS

    def likely_at(self, model: Model) -> float:
        """Return when a resident model may likely be evicted: earlier than leases as they stand would let it, where
        they are not in use, as far as their holders have said."""
        at, candidate, settings = model.evictable_at, model.candidate, self.settings
        if at <= self.now or at == math.inf:
            return at
        limit = self.idle_limit(model)
        stays = min(settings.residency_most_seconds, settings.residency_factor * candidate.load_seconds)
        likely = max(candidate.last_use + limit, candidate.resident_since + stays, model.expected_until)
        for lease in model.leases.values():
            late = self.now - (lease.ends - settings.lease_seconds) > 1.5 * settings.lease_seconds / RENEWALS_PER_LEASE
            if lease.holder in (UNSURE, RETURNING) or late or (lease.in_flight and not lease.uses):
                return at
            likely = max(likely, min(lease.ends, candidate.last_use + self.given_back_after(self.lease_limit(model))))
        return likely if likely > self.now else min(at, self.now + LOOK_SECONDS)

    def refresh(self, model: Model) -> None:
        """Compute anew when a resident model may be evicted, if nothing else happens."""
        settings, candidate = self.settings, model.candidate
        until, last_use = -math.inf, candidate.last_use
        for lease in model.leases.values():
            until = max(until, lease.ends)
            if lease.in_flight:
                last_use = max(last_use, lease.ends)  # it will count as used until its lease ends
        stays = min(settings.residency_most_seconds, settings.residency_factor * candidate.load_seconds)
        at = max(until, last_use + self.idle_limit(model), candidate.resident_since + stays, model.expected_until)
        if model.pinned:
            at = until = math.inf
        model.evictable_at, model.evictable_if_forced_at = at, until
        candidate.bytes = self.ledger.charges.get(model.name, 0)
