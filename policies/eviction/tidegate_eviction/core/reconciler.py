"""Starts of the policy and of the server, and changes of the settings."""

from collections.abc import Iterable, Mapping

from tidegate_contracts.lease import State

from . import leases, transitions
from .accounting import CapacityLedger, MemoryEstimate
from .messages import Allowed, EvictionReason, ModelSpec, PoolSettings, ServerInventory
from .pool import NO_OPERATION, UNSURE, Failures, Model, Pool
from .states import HOLDS_ROOM
from .victims import VictimSelector


def configure(pool: Pool, settings: PoolSettings, specs: Mapping[str, ModelSpec]) -> None:
    """Use other settings."""
    specs = dict(specs)
    measured = pool.settings.measures
    pool.configure(settings, specs)
    for name, spec in specs.items():
        model = pool.models.get(name) or pool.add(name, spec)
        before, model.spec = model.wanted_identity, spec
        if model.wanted_identity != before:
            allow(pool, model, "it changed")
        same = model.identity == model.wanted_identity
        if model.state is State.RESIDENT and not same:
            drain(pool, model, "changed")
        elif model.state is State.DRAINING and same:
            pool.move(model, "kept")
            pool.refresh(model)
    for model in [model for model in pool.models.values() if model.name not in specs]:
        model.spec = None
        if model.state is State.RESIDENT:
            drain(pool, model, "removed")
        elif model.state in (State.COLD, State.QUEUED, State.QUARANTINED):
            pool.move(model, "removed")
    for piece in pool.ledger.charges:
        if pool.footprints.known(piece) and piece not in pool.ledger.going:
            pool.ledger.recharge(piece, pool.footprints.of(piece))
    if measured and not settings.measures:
        pool.ledger.settle(pool.ledger.margins)
        for freeing in list(pool.ledger.freeing.values()):
            transitions.freed(pool, pool.models[freeing.model], 0)
    for model in pool.by_state[State.RESIDENT].values():
        pool.refresh(model)
    pool.dirty = True


def allow(pool: Pool, model: Model, why: str) -> None:
    """Clear a model's failures."""
    if model.failures.count:
        if model.failures.quarantined:
            pool.report(Allowed(model.name, why))
        model.failures = Failures()
        if model.state is State.QUARANTINED:
            pool.move(model, "allowed")
        pool.dirty = True


def drain(pool: Pool, model: Model, reason: EvictionReason) -> None:
    """Unload a resident model after its last lease."""
    model.drained_for = reason
    pool.move(model, "outdated")


def recover(pool: Pool, found: ServerInventory) -> None:
    """Start with the server's models, and treat every loaded one as leased for a full period."""
    pool.ready, pool.dirty = True, True
    unloading = list(found.unloading)
    if found.same:  # A broken connection frees neither leaked memory nor memory that was being freed.
        pool.memory = pool.before
        there = {*found.resident, *found.loading, *found.unloading}
        unloading += [piece for piece in pool.memory.taken if piece not in there]
    for name in _explicit(pool, found.resident):
        if (model := _cold(pool, name)) is not None:
            _find(pool, model, model.pieces, found)
    for name in _explicit(pool, found.loading):
        if (model := _cold(pool, name)) is not None and transitions.entangled(pool, model) is None:
            transitions.load(pool, model, watch=True)
    for name in unloading:
        if name not in pool.ledger.charges and (model := _cold(pool, name)) is not None:
            _find(pool, model, (name,), None)
            transitions.unload(pool, model, "evicted", watch=True)
    pool.memory.forget(pool.ledger.charges)
    for model in list(pool.by_state[State.COLD].values()):
        transitions.settle(pool, model)


def lost(pool: Pool) -> None:
    """Forget the server's models. A model that was loading may have crashed it."""
    loading = [model for model in pool.loads.values() if not model.operation.watched]
    was_ready, pool.ready, pool.recycling = pool.ready, False, ""
    pool.loads.clear()
    pool.unloads.clear()
    if was_ready:
        pool.memory.waits_on(pool.ledger)
        pool.before = pool.memory
    pool.ledger = CapacityLedger()
    pool.memory = MemoryEstimate()
    for model in [model for model in pool.models.values() if model.state in HOLDS_ROOM]:
        model.leases.clear()
        model.held, model.operation = (), NO_OPERATION
        pool.move(model, "lost")
    for model in loading:
        if len(loading) == 1:
            transitions.blame(pool, model, "the server ended while the model was loading")
        else:
            model.suspect = True
    for model in [model for model in pool.models.values() if model.state is State.COLD]:
        transitions.settle(pool, model)
    for model in pool.by_state[State.QUEUED].values():
        model.room_made, model.due = False, pool.now


def fit(pool: Pool, model: Model, over: int) -> bool:
    """Evict others for a model that is `over` bytes too large, or else itself. Return whether it stays."""
    victims = VictimSelector(pool)
    others = victims.choose(over, forced=pool.demanded(model), wanted=model.held)
    for other in others:
        transitions.evict(pool, other, "overrun", model.name)
    if not others:
        transitions.evict(pool, model, "overrun")
    return bool(others)


def _explicit(pool: Pool, names: Iterable[str]) -> list[str]:
    """Leave out models that are loaded only as a part of others."""
    specs = pool.specs
    names = list(names)
    parts = {part for name in names if name in specs for part in specs[name].parts}
    return [name for name in names if name not in parts or (name in specs and specs[name].callable)]


def _cold(pool: Pool, name: str) -> Model | None:
    """Return a model of the server as a cold one. None if it has another state already."""
    model = pool.models.get(name) or pool.add(name, None)
    if model.state is State.QUEUED:
        pool.move(model, "unwanted")
    elif model.state is State.QUARANTINED:
        allow(pool, model, "the server has it loaded")
    return model if model.state is State.COLD else None


def _find(pool: Pool, model: Model, pieces: tuple[str, ...], found: ServerInventory | None) -> None:
    """Adopt a model that the server has loaded. Its lease and its idle time begin now."""
    new = pool.ledger.take(model.name, pieces, pool.footprints.of)
    model.held = pieces
    # After a broken connection, earlier sizes are better than the charges.
    sizes = {piece: pool.ledger.charges[piece] for piece in new if piece not in pool.memory.taken}
    pool.memory.loaded(0, sizes, measured=False)
    model.identity = model.wanted_identity
    model.versions = model.identity[1]
    candidate = model.candidate
    candidate.last_use = max(candidate.last_use, pool.now)
    candidate.load_seconds = pool.load_estimate(model)
    candidate.resident_since = pool.now - pool.settings.residency_most_seconds
    pool.move(model, "found")
    pool.refresh(model)
    if found is None:
        return
    versions = found.versions.get(model.name, ())
    if versions and model.versions and set(versions) != set(model.versions):
        model.identity = (model.identity[0], versions)
    model.versions = versions or model.versions
    leases.hold(pool, model, UNSURE, pool.longest_lease)
    pool.refresh(model)
    if model.spec is None:
        drain(pool, model, "stranger")
    elif model.identity != model.wanted_identity:
        drain(pool, model, "changed")
