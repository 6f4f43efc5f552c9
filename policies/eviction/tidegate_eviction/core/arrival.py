"""Starts and changes: of the settings, of the policy itself, and of Triton."""

from collections.abc import Iterable, Mapping

from ..states import HOLDS_ROOM, Cause, State
from .leasing import Leasing
from .memory import Memory
from .model import Failures, Model
from .outlook import Outlook
from .pool import Pool
from .rules import Found, ModelSpec, PoolRules
from .steps import Allowed, EvictionReason
from .work import Works


class Arrival:
    """Has the models go where settings and Triton's index say that they are."""

    def __init__(self, pool: Pool, works: Works, leasing: Leasing) -> None:
        self._pool = pool
        self._works = works
        self._leasing = leasing
        self._before = Memory()
        """What was known of the memory of the Triton that was lost."""

    # Settings

    def configure(self, rules: PoolRules, specs: Mapping[str, ModelSpec]) -> None:
        """Go on with other settings."""
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
                self._works.freed(pool.models[freeing.model], 0)
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

    def recover(self, found: Found) -> None:
        """Begin with what Triton has, and count every model that is loaded as leased for a full period."""
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
            if (model := self._cold(name)) is not None and self._works.entangled(model) is None:
                self._works.load(model, watch=True)
        for name in unloading:
            if name not in pool.room.charges and (model := self._cold(name)) is not None:
                self._find(model, (name,), None)
                self._works.watch_unload(model)
        pool.memory.forget(pool.room.charges)
        for model in list(pool.by[State.COLD].values()):
            self._works.settle(model)

    def lost(self) -> None:
        """Forget all that Triton had. Whoever was being loaded may have brought it down."""
        pool = self._pool
        loading = [model for model in pool.loads.values() if model.work is not None and not model.work.watched]
        was_ready, pool.ready, pool.recycling = pool.ready, False, ""
        pool.loads.clear()
        pool.unloads.clear()
        if was_ready:
            pool.memory.waits_on(pool.room)
            self._before = pool.memory
        pool.room.clear()
        pool.memory = Memory()
        for model in [model for model in pool.models.values() if model.state in HOLDS_ROOM]:
            model.leases.clear()
            model.held, model.work = (), None
            pool.move(model, Cause.LOST)
        for model in loading:
            if len(loading) == 1:
                self._works.blame(model, "Triton ended while it was being loaded")
            else:
                model.suspect = True
        for model in [model for model in pool.models.values() if model.state is State.COLD]:
            self._works.settle(model)
        for model in pool.by[State.QUEUED].values():
            model.room_made, model.due = False, pool.now

    def fit(self, model: Model, over: int) -> bool:
        """Have others go for a model that is larger than was thought, and tell whether it may stay: if they are not
        enough, it goes itself."""
        pool = self._pool
        outlook = Outlook(pool)
        others = outlook.choose(over, forced=pool.demanded(model), wanted=model.held)
        for other in others:
            self._works.evict(other, "overrun", model.name)
        if not others:
            self._works.evict(model, "overrun")
        return bool(others)

    def _explicit(self, names: Iterable[str]) -> list[str]:
        """Leave out what is there only as a part of others."""
        specs = self._pool.specs
        names = list(names)
        parts = {part for name in names if name in specs for part in specs[name].parts}
        return [name for name in names if name not in parts or (name in specs and specs[name].callable)]

    def _cold(self, name: str) -> Model | None:
        """Return a model as a cold one, which the index speaks of; None, if more is known of it already."""
        pool = self._pool
        model = pool.models.get(name) or pool.add(name, None)
        if model.state is State.QUEUED:
            pool.move(model, Cause.UNWANTED)
        elif model.state is State.QUARANTINED:
            self.allow(model, "Triton has it all the same")
        return model if model.state is State.COLD else None

    def _find(self, model: Model, pieces: tuple[str, ...], found: Found | None) -> None:
        """Take over what Triton has loaded; its lease, and its idle time, begin now."""
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
        self._leasing.hold(model, max(pool.rules.lease_seconds, found.lease_seconds))
        if model.spec is None:
            self.drain(model, "stranger")
        elif model.identity != model.wanted_identity:
            self.drain(model, "changed")
