"""Starts and changes: of the settings, of the policy itself, and of the server."""

from collections.abc import Iterable, Mapping

from .accounting import CapacityLedger, MemoryEstimate
from .events import Allowed, EvictionReason
from .leases import LeaseTable
from .planner import VictimSelector
from .pool import Failures, Model, Pool
from .rules import ModelSpec, PoolRules, ServerInventory
from .states import HOLDS_ROOM, Cause, State
from .transitions import ModelTransitions


class Reconciler:
    """Moves the models to where the settings, and what the server has loaded, say that they are."""

    def __init__(self, pool: Pool, transitions: ModelTransitions, leases: LeaseTable) -> None:
        self._pool = pool
        self._transitions = transitions
        self._leases = leases
        self._before = MemoryEstimate()
        """What was known of the memory of the server that was lost."""

    # Settings

    def configure(self, rules: PoolRules, specs: Mapping[str, ModelSpec]) -> None:
        """Take other settings over."""
        pool = self._pool
        specs = dict(specs)
        measured = pool.rules.measures
        pool.configure(rules, specs)
        for name, spec in specs.items():
            model = pool.models.get(name) or pool.add(name, spec)
            before, model.spec = model.wanted_identity, spec
            if model.wanted_identity != before:
                self.allow(model, "it changed")
            self._follow(model)
        for model in [model for model in pool.models.values() if model.name not in specs]:
            self._remove(model)
        for piece in pool.room.charges:
            if pool.sizes.known(piece) and piece not in pool.room.going:
                pool.room.recharge(piece, pool.sizes.of(piece))
        if measured and not rules.measures:
            for freeing in list(pool.room.freeing.values()):
                self._transitions.freed(pool.models[freeing.model], 0)
        pool.watch_windows()
        for model in pool.by[State.RESIDENT].values():
            pool.refresh(model)
        pool.dirty = True

    def allow(self, model: Model, why: str) -> None:
        """Forget a model's failures."""
        if model.failures.count:
            if model.failures.quarantined:
                self._pool.tell(Allowed(model.name, why))
            model.failures = Failures()
            if model.state is State.QUARANTINED:
                self._pool.move(model, Cause.ALLOWED)
            self._pool.dirty = True

    def drain(self, model: Model, reason: EvictionReason) -> None:
        """Have a resident model unloaded once its last lease has ended."""
        model.drained_for = reason
        self._pool.move(model, Cause.OUTDATED)

    def _follow(self, model: Model) -> None:
        """Drain what is loaded and not wanted so any more; keep what drains and is wanted after all."""
        same = model.identity == model.wanted_identity
        if model.state is State.RESIDENT and not same:
            self.drain(model, "changed")
        elif model.state is State.DRAINING and same:
            self._pool.move(model, Cause.KEPT)
            self._pool.refresh(model)

    def _remove(self, model: Model) -> None:
        """Take away a model that the settings do not name any more; what is loaded of it drains."""
        model.spec = None
        if model.state is State.RESIDENT:
            self.drain(model, "removed")
        elif model.state in (State.COLD, State.QUEUED, State.QUARANTINED):
            self._pool.move(model, Cause.REMOVED)

    # Starts

    def recover(self, found: ServerInventory) -> None:
        """Begin with what the server has, and count every model that is loaded as leased for a full period."""
        pool = self._pool
        pool.ready, pool.dirty = True, True
        unloading = list(found.unloading)
        if found.same:  # what has leaked, or was about to come back, is not free because a connection broke
            pool.memory = self._before
            there = {*found.resident, *found.loading, *found.unloading}
            unloading += [piece for piece in pool.memory.taken if piece not in there]
        for name in self._explicit(found.resident):
            if (model := self._cold(name)) is not None:
                self._find(model, model.pieces, found)
        for name in self._explicit(found.loading):
            if (model := self._cold(name)) is not None and self._transitions.entangled(model) is None:
                self._transitions.load(model, watch=True)
        for name in unloading:
            if name not in pool.room.charges and (model := self._cold(name)) is not None:
                self._find(model, (name,), None)
                self._transitions.watch_unload(model)
        pool.memory.forget(pool.room.charges)
        for model in list(pool.by[State.COLD].values()):
            self._transitions.settle(model)

    def lost(self) -> None:
        """Forget all that the server had. A model that was being loaded may have brought it down."""
        pool = self._pool
        loading = [
            model for model in pool.loads.values() if model.operation is not None and not model.operation.watched
        ]
        was_ready, pool.ready, pool.recycling = pool.ready, False, ""
        pool.loads.clear()
        pool.unloads.clear()
        if was_ready:
            pool.memory.waits_on(pool.room)
            self._before = pool.memory
        pool.room = CapacityLedger()
        pool.memory = MemoryEstimate()
        for model in [model for model in pool.models.values() if model.state in HOLDS_ROOM]:
            model.leases.clear()
            model.held, model.operation = (), None
            pool.move(model, Cause.LOST)
        for model in loading:
            if len(loading) == 1:
                self._transitions.blame(model, "the server ended while it was being loaded")
            else:
                model.suspect = True
        for model in [model for model in pool.models.values() if model.state is State.COLD]:
            self._transitions.settle(model)
        for model in pool.by[State.QUEUED].values():
            model.room_made, model.due = False, pool.now

    def fit(self, model: Model, over: int) -> bool:
        """Evict others for a model that turned out `over` bytes too large, and tell whether it may stay: if they are
        not enough, it is evicted itself."""
        pool = self._pool
        victims = VictimSelector(pool)
        others = victims.choose(over, forced=pool.demanded(model), wanted=model.held)
        for other in others:
            self._transitions.evict(other, "overrun", model.name)
        if not others:
            self._transitions.evict(model, "overrun")
        return bool(others)

    def _explicit(self, names: Iterable[str]) -> list[str]:
        """Leave out models that are loaded only as a part of others."""
        specs = self._pool.specs
        names = list(names)
        parts = {part for name in names if name in specs for part in specs[name].parts}
        return [name for name in names if name not in parts or (name in specs and specs[name].callable)]

    def _cold(self, name: str) -> Model | None:
        """Return a model that the server names, as a cold one; None if more is known of it already."""
        pool = self._pool
        model = pool.models.get(name) or pool.add(name, None)
        if model.state is State.QUEUED:
            pool.move(model, Cause.UNWANTED)
        elif model.state is State.QUARANTINED:
            self.allow(model, "the server has it all the same")
        return model if model.state is State.COLD else None

    def _find(self, model: Model, pieces: tuple[str, ...], found: ServerInventory | None) -> None:
        """Take over what the server has loaded; its lease, and its idle time, begin now."""
        pool = self._pool
        new = pool.room.take(model.name, pieces, pool.sizes.of)
        model.held = pieces
        pool.memory.found(0, {piece: pool.room.charges[piece] for piece in new})
        model.identity = model.wanted_identity
        model.versions = model.identity[1]
        candidate = model.candidate
        candidate.last_use = max(candidate.last_use, pool.now)
        candidate.load_seconds = pool.load_estimate(model)
        candidate.resident_since = pool.now - pool.rules.residency_most_seconds
        pool.move(model, Cause.FOUND)
        pool.refresh(model)
        if found is None:
            return
        versions = found.versions.get(model.name, ())
        if versions and model.versions and set(versions) != set(model.versions):
            model.identity = (model.identity[0], versions)
        model.versions = versions or model.versions
        self._leases.hold(model, max(pool.rules.lease_seconds, found.lease_seconds))
        if model.spec is None:
            self.drain(model, "stranger")
        elif model.identity != model.wanted_identity:
            self.drain(model, "changed")
