"""What the parts of the core share: the models of a pool, and where each of them is."""

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from ..choosing import Candidate
from ..states import AFTER, HOLDS_ROOM, Cause, State
from .memory import Memory
from .model import Lease, Model, Waiter
from .room import Room
from .rules import ModelSpec, PoolRules, WarmWindow
from .sizes import Sizes
from .steps import Command, Event, Recycling, Step


class Pool:
    """Models by name and by state, room, settings, the time, and the step that is being taken."""

    def __init__(self, rules: PoolRules, now: float) -> None:
        self.rules = rules
        self.now = now
        self.specs: Mapping[str, ModelSpec] = {}
        self.windows: Sequence[WarmWindow] = ()
        self.warm: dict[str, float] = {}
        """Models that a window holds now, or soon; and when it closes."""
        self.sizes = Sizes()
        self.room = Room()
        self.memory = Memory()
        self.models: dict[str, Model] = {}
        self.by: dict[State, dict[str, Model]] = {state: {} for state in State}
        self.loads: dict[int, Model] = {}
        self.unloads: dict[int, Model] = {}
        self.ready = False
        """Triton answers, and its index was read."""
        self.leaving = False
        self.recycling = ""
        """Why Triton is to be restarted."""
        self.pressed_until = -math.inf
        """Until when somebody wants room that there is none of."""
        self.dirty = True
        """Something happened that may let a load or an unload begin."""
        self.plan_at = math.inf
        self.window_at = math.inf
        self.step = Step()
        self.numbers = itertools.count(1)
        self.pinned: tuple[str, ...] = ()
        self._pinned_pieces: frozenset[str] = frozenset()
        self._alarms: list[tuple[float, int, Lease | Waiter]] = []

    @property
    def accepts(self) -> bool:
        """Whether new leases are given."""
        return not (self.leaving or self.recycling)

    # What is told

    def tell(self, event: Event) -> None:
        """Tell of an event in this step."""
        self.step.events.append(event)

    def order(self, command: Command) -> None:
        """Have a command carried out in this step."""
        self.step.commands.append(command)

    # When something is due

    def alarm(self, at: float, whom: Lease | Waiter) -> None:
        """Have a lease or a waiter looked at when it may have ended."""
        heapq.heappush(self._alarms, (at, next(self.numbers), whom))

    def due(self) -> Iterator[Lease | Waiter]:
        """Yield those whose time has come."""
        while self._alarms and self._alarms[0][0] <= self.now:
            yield heapq.heappop(self._alarms)[2]

    def next_deadline(self) -> float:
        """Return when something is due next."""
        return min(self.plan_at, self.window_at, self._alarms[0][0] if self._alarms else math.inf)

    # States

    def add(self, name: str, spec: ModelSpec | None) -> Model:
        """Add a model, cold."""
        candidate = Candidate(name, 0, last_use=-math.inf, resident_since=self.now, load_seconds=0.0, gap_seconds=0.0)
        model = self.models[name] = Model(name, spec, candidate)
        self.move(model, Cause.ADDED)
        return model

    def move(self, model: Model, cause: Cause) -> None:
        """Change a model's state."""
        after = AFTER[model.state, cause]
        self.by[model.state].pop(model.name, None)
        model.state = after
        model.why = ""
        if after is State.UNKNOWN:
            del self.models[model.name]
        else:
            self.by[after][model.name] = model
        self.dirty = True

    def holding(self) -> Iterator[Model]:
        """Yield the models that take room."""
        for state in HOLDS_ROOM:
            yield from self.by[state].values()

    def demanded(self, model: Model) -> bool:
        """Tell whether a model is to be resident without anybody asking."""
        return (
            model.spec is not None and (model.spec.pinned or model.name in self.warm) and not model.failures.quarantined
        )

    def recycle(self, reason: str) -> None:
        """Have Triton restarted once no lease lives."""
        if not self.recycling:
            self.recycling = reason
            self.dirty = True
            self.tell(Recycling(reason))

    # Sizes

    def configure(self, rules: PoolRules, specs: Mapping[str, ModelSpec]) -> None:
        """Go on with other settings."""
        self.rules, self.specs = rules, specs
        self.pinned = tuple(name for name, spec in specs.items() if spec.pinned)
        self._pinned_pieces = frozenset(piece for name in self.pinned for piece in (name, *specs[name].parts))
        self.sizes.configure(specs, rules.capacity_bytes, self._pinned_pieces)

    def needed(self, model: Model) -> int:
        """Return the bytes that a load of it would have to be charged."""
        return self.room.needed(model.pieces, self.sizes.of)

    def whole(self, model: Model) -> int:
        """Return the bytes of it with all its parts."""
        return sum(self.sizes.of(piece) for piece in model.pieces)

    def limit(self, model: Model) -> int:
        """Return how large it may be at most: what pinned models take is theirs."""
        if model.spec is not None and model.spec.pinned:
            return self.rules.capacity_bytes
        pieces = set(model.pieces)
        return self.rules.capacity_bytes - sum(
            self.sizes.of(piece) for piece in self._pinned_pieces if piece not in pieces
        )

    @property
    def free(self) -> int:
        """Bytes that are not charged; negative while more is charged than there is."""
        return self.rules.capacity_bytes - self.memory.leaked - self.room.total

    def load_estimate(self, model: Model) -> float:
        """Return how long a load of it takes, as far as anybody knows."""
        if model.load_seconds is not None:
            return model.load_seconds
        if model.spec is not None and model.spec.load_seconds is not None:
            return model.spec.load_seconds
        return self.rules.default_load_seconds

    # When a model may go

    def idle_limit(self, model: Model) -> float:
        """Return how long a model must have been idle."""
        if not self.rules.policy.idle_limits:
            return 0.0
        own = model.spec.idle_seconds if model.spec else 0.0
        return self.rules.idle_seconds if own is None else own

    def refresh(self, model: Model) -> None:
        """Work out anew when a resident model may be evicted, if nothing else happens."""
        rules, candidate = self.rules, model.candidate
        until, last_use = -math.inf, candidate.last_use
        for lease in model.leases.values():
            until = max(until, lease.ends)
            if lease.in_flight:
                last_use = max(last_use, lease.ends)  # it will count as used until its lease ends
        stays = min(rules.residency_most_seconds, rules.residency_factor * candidate.load_seconds)
        at = max(until, last_use + self.idle_limit(model), candidate.resident_since + stays)
        if not rules.policy.evicts or (model.spec is not None and model.spec.pinned):
            at = until = math.inf
        closes = self.warm.get(model.name)
        if closes is not None:
            at, until = max(at, closes), max(until, closes)
        model.at, model.forced_at = at, until
        candidate.bytes = self.room.charges.get(model.name, 0)

    def watch_windows(self) -> None:
        """Look which windows are open, or near enough for their models to be loaded."""
        warm: dict[str, float] = {}
        self.window_at = math.inf
        for window in self.windows:
            for name in window.models:
                model = self.models.get(name)
                if model is None or window.closes <= self.now:
                    continue
                begins = window.opens - self.rules.lease_seconds - 2 * self.load_estimate(model)
                if begins <= self.now:
                    warm[name] = max(warm.get(name, -math.inf), window.closes)
                    self.window_at = min(self.window_at, window.closes)
                else:
                    self.window_at = min(self.window_at, begins)
        changed = {name for name in warm.keys() | self.warm.keys() if warm.get(name) != self.warm.get(name)}
        self.warm = warm
        for name in changed:
            if (model := self.by[State.RESIDENT].get(name)) is not None:
                self.refresh(model)
        self.dirty = self.dirty or bool(changed)
