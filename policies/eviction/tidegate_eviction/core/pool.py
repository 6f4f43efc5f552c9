"""The state shared by all parts of the core: the models of a pool, their states, and the next deadlines."""

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

LOOK_SECONDS = 1.0  # The interval at which a proxy checks its leases and releases unused ones.
_IDLE_LOADS = 4  # With break-even, a model can be evicted after being idle for this many loads.
_TIMES = 32  # The number of recent loads and unloads that the medians use.
UNSURE = "an earlier start"
"""The holder of the lease on every model found at a start. No name on the wire can equal it."""
RETURNING = "callers who are due to return"
"""The holder of the lease that keeps a loaded model for returning callers. No name on the wire can equal it."""
NO_ROOM = "the memory is full: all resident models are in use, or were used too recently"
LEAKED = "it does not fit because of leaked memory"
BARRED = "another model has waited longer for memory"
WANTS_ROOM = frozenset({NO_ROOM, LEAKED, BARRED})
"""The reasons of queued models that wait for memory."""


@dataclass(slots=True, eq=False)
class Lease:
    """A holder's lease on a model, with the requests in flight at the last renewal."""

    model: str
    holder: str
    ends: float
    in_flight: int
    serial: int = 0  # Of the latest grant. A release with an earlier one does not end the lease.
    uses: int = 0  # Grants since the holder's last report.


@dataclass(slots=True)
class Waiter:
    """A waiting ticket. Memory must be free by `room_by`, and the lease granted by the ticket's deadline."""

    ticket: Ticket
    room_by: float = math.inf
    is_back: bool = False  # Whether its caller came when a refused one was due.


@dataclass(slots=True, frozen=True)
class Operation:
    """A load or an unload in progress."""

    number: int = 0
    since: float = 0.0
    pieces: tuple[str, ...] = ()  # The pieces that a load adds, or an unload removes.
    alone: bool = False
    clean: bool = False  # No other load or unload ran meanwhile.
    watched: bool = False  # It was in progress at the start, so its beginning is unknown.
    identity: tuple[str, tuple[int, ...]] = ("", ())
    queued: float = 0.0  # Seconds that the first waiting caller waited before the load.


NO_OPERATION = Operation()  # A model that is neither loading nor unloading.


@dataclass(slots=True)
class Failures:
    """Consecutive failed loads."""

    count: int = 0
    last: float = -math.inf
    why: str = ""
    not_before: float = -math.inf
    quarantined: bool = False


@dataclass(slots=True, eq=False)
class Model:
    """A model of the pool, or one that only the server has (`spec` is None)."""

    name: str
    spec: ModelSpec | None
    candidate: Candidate  # How policies see it. It is kept while the model is cold, to keep its uses.
    state: State = State.UNKNOWN
    since: float = 0.0  # When it entered this state.
    why: str = ""
    waiters: dict[int, Waiter] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    used_at: float = -math.inf  # The time of the last known request.
    held: tuple[str, ...] = ()  # Itself and its parts, from the begin of a load until their memory is free.
    evictable_at: float = math.inf  # When a resident model can be evicted, as things stand.
    evictable_if_forced_at: float = math.inf  # The same if only leases protect it.
    identity: tuple[str, tuple[int, ...]] = ("", ())
    versions: tuple[int, ...] = ()
    load_seconds: float | None = None
    operation: Operation = NO_OPERATION
    failures: Failures = field(default_factory=Failures)
    refused: float = 0.0  # Callers refused since it was last resident, faded as of `refused_at`.
    refused_at: float = 0.0  # The last refusal.
    busy_at: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_BUSY))  # Recent refusals.
    no_room: tuple[float, float] = (-math.inf, -math.inf)  # The first and last since a load.
    suspect: bool = False  # The server ended during several loads: this model loads alone next time.
    queued_at: float = 0.0
    room_made: bool = False  # Memory is reserved for its load, usually because others were evicted.
    room_kept_until: float = -math.inf  # The end of that if no caller waits.
    due: float = 0.0  # For a queued model: the earliest time with enough memory.
    wanted_since: float = 0.0
    """The request of its first waiting caller, and the return of the first refused caller."""
    back_at: float = -math.inf
    returns: list[tuple[float, float]] = field(default_factory=list)
    """Periods in which refused callers are due. Overlapping ones are merged."""
    kept_until: float = -math.inf  # The end of the period for callers refused during its load.
    burst_at: float = -math.inf  # The start of the last burst of calls.
    gaps: tuple[float, ...] = ()  # Seconds between the last bursts, the latest last.
    expected_until: float = -math.inf  # It is kept until then for a timer's call.
    drained_for: EvictionReason = "changed"
    unload_failures: int = 0
    unload_again: float = math.inf

    @property
    def wanted_identity(self) -> tuple[str, tuple[int, ...]]:
        """The content that a load would load now."""
        return (self.spec.stamp, self.spec.versions) if self.spec else ("", ())

    @property
    def pieces(self) -> tuple[str, ...]:
        if self.spec is None or not self.spec.parts:
            return (self.name,)
        return tuple(dict.fromkeys((self.name, *self.spec.parts)))

    @property
    def returns_until(self) -> float:
        return max((until for _, until in self.returns), default=-math.inf)

    @property
    def pinned(self) -> bool:
        return self.spec is not None and self.spec.pinned

    @property
    def leased_until(self) -> float:
        """The end of its last lease without renewals, or minus infinity."""
        return max((lease.ends for lease in self.leases.values()), default=-math.inf)


class Pool:
    """Models by name and by state, their memory, the settings, the time, and the present step."""

    def __init__(self, settings: PoolSettings, now: float) -> None:
        self.settings = settings
        self.now = now
        self.specs: Mapping[str, ModelSpec] = {}
        self.footprints = FootprintTable()
        self.ledger = CapacityLedger()
        self.memory = MemoryEstimate()
        self.before = MemoryEstimate()  # The memory of the lost server.
        self.models: dict[str, Model] = {}
        self.by_state: dict[State, dict[str, Model]] = {state: {} for state in State}
        self.loads: dict[int, Model] = {}
        self.unloads: dict[int, Model] = {}
        self.ready = False  # The server is connected, and its loaded models are known.
        self.leaving = False
        self.recycling = ""
        self.restart_ordered = False
        self.pressed_until = -math.inf  # The end of the time in which callers lack memory.
        self.dirty = True  # Something changed that may let a load or an unload begin.
        self.plan_at = math.inf
        self.expected: list[tuple[float, str, float]] = []
        """A heap of loads ahead of calls: the time of each, its model, and the burst that predicted it."""
        self.step = Step()
        self.numbers = itertools.count(1)
        self.serial = 0
        self.pinned: tuple[str, ...] = ()
        self._pinned_pieces: frozenset[str] = frozenset()
        self.returning: dict[str, None] = {}  # Models with returning callers.
        self.load_times: deque[float] = deque(maxlen=_TIMES)
        self.unload_times: deque[float] = deque(maxlen=_TIMES)
        self._loads_took: float | None = None  # The median load time before the start.
        self.longest_lease = 0.0  # The longest lease granted since the start, which may still be live.
        self._alarms: list[tuple[float, int, Lease | Waiter]] = []

    @property
    def accepts(self) -> bool:
        return not (self.leaving or self.recycling)

    def report(self, event: Event) -> None:
        self.step.events.append(event)

    def order(self, command: Command) -> None:
        self.step.commands.append(command)

    def alarm(self, at: float, whom: Lease | Waiter) -> None:
        """Check a lease or a waiter at a time."""
        heapq.heappush(self._alarms, (at, next(self.numbers), whom))

    def due(self) -> Sequence[Lease | Waiter]:
        """Return the leases and waiters to check now, each once."""
        found: list[Lease | Waiter] = []
        while self._alarms and self._alarms[0][0] <= self.now:
            found.append(heapq.heappop(self._alarms)[2])
        return found

    def next_deadline(self) -> float:
        return min(self.plan_at, self.expected_at, self._alarms[0][0] if self._alarms else math.inf)

    @property
    def expected_at(self) -> float:
        return self.expected[0][0] if self.expected else math.inf

    def add(self, name: str, spec: ModelSpec | None) -> Model:
        candidate = Candidate(name, 0, last_use=-math.inf, resident_since=self.now, load_seconds=0.0, gap_seconds=0.0)
        model = self.models[name] = Model(name, spec, candidate)
        self.move(model, "added")
        return model

    def move(self, model: Model, cause: Cause) -> None:
        """Change a model's state. Raises KeyError if `states` has no such transition."""
        after = AFTER[model.state, cause]
        self.by_state[model.state].pop(model.name, None)
        model.state, model.since, model.why = after, self.now, ""
        if after is State.UNKNOWN:
            del self.models[model.name]
        else:
            self.by_state[after][model.name] = model
        self.dirty = True

    def holding(self) -> Iterator[Model]:
        """Yield the models that use memory."""
        for state in HOLDS_ROOM:
            yield from self.by_state[state].values()

    def demanded(self, model: Model) -> bool:
        """Return whether a model must be resident without a call."""
        return model.spec is not None and model.pinned and not (model.spec.problem or model.failures.quarantined)

    def recycle(self, reason: str) -> None:
        """Request a restart of the server after the last lease."""
        if not self.recycling:
            self.recycling = reason
            self.dirty = True
            self.report(Recycling(reason))

    def configure(self, settings: PoolSettings, specs: Mapping[str, ModelSpec]) -> None:
        self.settings, self.specs = settings, specs
        self.longest_lease = max(self.longest_lease, settings.lease_seconds)
        took = [spec.load_seconds for spec in specs.values() if spec.load_seconds is not None]
        self._loads_took = statistics.median(took) if took else None
        self.pinned = tuple(name for name, spec in specs.items() if spec.pinned)
        self._pinned_pieces = frozenset(piece for name in self.pinned for piece in (name, *specs[name].parts))
        self.footprints.configure(specs, settings.capacity_bytes, self._pinned_pieces)

    def needed(self, model: Model) -> int:
        """Return the bytes that a load would add to the charges."""
        footprints, charges = self.footprints, self.ledger.charges
        return sum([footprints.of(piece) for piece in model.pieces if piece not in charges])

    def margin(self, model: Model) -> int:
        """Return the additional margin for a load of pieces that were never measured."""
        footprints, share = self.footprints, self.settings.first_load_margin if self.settings.measures else 0.0
        new = [piece for piece in model.pieces if piece not in self.ledger.charges]
        return int(share * sum(footprints.of(piece) for piece in new if footprints.measured(piece) is None))

    def whole(self, model: Model) -> int:
        """Return the bytes of a model with all its parts."""
        return sum(map(self.footprints.of, model.pieces))

    def limit(self, model: Model) -> int:
        """Return the most bytes that a model can have: the capacity without pinned models."""
        if model.pinned:
            return self.settings.capacity_bytes
        return self.settings.capacity_bytes - sum(map(self.footprints.of, self._pinned_pieces.difference(model.pieces)))

    @property
    def free(self) -> int:
        """Bytes that are not charged. Negative if the charges exceed the capacity."""
        return self.settings.capacity_bytes - self.memory.leaked - self.ledger.total

    def over(self) -> int:
        """Return by how many bytes the charges will exceed the capacity once pending memory is free. Margins yield."""
        if self.free + self.ledger.pending < 0:
            self.ledger.settle(self.ledger.margins)
        return -self.free - self.ledger.pending

    def load_measured(self, model: Model) -> float | None:
        """Return the seconds of a model's last load, here or before the start. None: unknown."""
        return model.load_seconds if model.load_seconds is not None or model.spec is None else model.spec.load_seconds

    def load_cost(self, model: Model) -> float:
        """Return the seconds of a load if its files are no longer in the cache."""
        return self.load_estimate(model) + model.candidate.copied_seconds

    def load_estimate(self, model: Model) -> float:
        """Return the expected seconds of a load."""
        known = self.load_measured(model)
        return self.settings.default_load_seconds if known is None else known

    def loads_take(self) -> float | None:
        """Return the median seconds of recent loads. None: none was measured."""
        return statistics.median(self.load_times) if self.load_times else self._loads_took

    def unloads_take(self) -> float:
        """Return the median seconds from the order of an unload until its memory is free."""
        return statistics.median(self.unload_times) if self.unload_times else 0.0

    def refused_busy(self) -> list[Model]:
        """Return the models without waiting callers whose refused callers may still return."""
        for name in list(self.returning):
            if name not in self.models or self.models[name].returns_until < self.now:
                del self.returning[name]
        models = [self.models[name] for name in self.returning]
        return [each for each in models if each.state in (State.COLD, State.QUEUED) and not each.waiters]

    def idle_limit(self, model: Model) -> float:
        """Return the seconds that a model must have been idle."""
        if self.breaks_even(model):
            return min(self.settings.idle_seconds, _IDLE_LOADS * self.load_cost(model))
        own = model.spec.idle_seconds if model.spec else 0.0
        return self.settings.idle_seconds if own is None else own

    def breaks_even(self, model: Model) -> bool:
        """Return whether a model can be evicted early if that pays. A model with its own idle limit cannot."""
        return self.settings.policy.breaks_even and model.spec is not None and model.spec.idle_seconds is None

    def lease_limit(self, model: Model) -> float:
        """Return the idle seconds after which a proxy's lease is not renewed while memory is wanted."""
        return LOOK_SECONDS if self.breaks_even(model) else self.idle_limit(model)

    def given_back_after(self, limit: float) -> float:
        """Return the longest time without a request until a proxy's lease ends while memory is wanted. A proxy releases
        a lease that it has not used for a whole lease, and loses one at a renewal after the idle limit."""
        lease = self.settings.lease_seconds
        return min(lease, limit + lease / RENEWALS_PER_LEASE) + LOOK_SECONDS

    def likely_at(self, model: Model) -> float:
        """Return when a model can probably be evicted: before its leases end, if their holders report no use."""
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
        """Compute again when a resident model can be evicted, if nothing else happens."""
        settings, candidate = self.settings, model.candidate
        until, last_use = -math.inf, candidate.last_use
        for lease in model.leases.values():
            until = max(until, lease.ends)
            if lease.in_flight:
                last_use = max(last_use, lease.ends)  # It will count as used until its lease ends.
        stays = min(settings.residency_most_seconds, settings.residency_factor * candidate.load_seconds)
        at = max(until, last_use + self.idle_limit(model), candidate.resident_since + stays, model.expected_until)
        if model.pinned:
            at = until = math.inf
        model.evictable_at, model.evictable_if_forced_at = at, until
        candidate.bytes = self.ledger.charges.get(model.name, 0)
