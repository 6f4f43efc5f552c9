"""Loads and unloads: one at a time for each model, charged until they end, and their outcomes."""

import math
from collections.abc import Iterable
from dataclasses import replace

from tidegate_contracts.lease import State

from . import messages
from .accounting import Freeing
from .pool import NO_OPERATION, Model, Operation, Pool
from .states import Cause

_UNLOAD_BACKOFF = 5.0


def alone(pool: Pool, model: Model) -> bool:
    """Return whether a model must load alone: it must be measured, or it may have crashed the server."""
    if pool.settings.measures:
        for piece in model.pieces:
            if piece not in pool.ledger.charges and not pool.footprints.known(piece):
                return True
    return model.suspect


def calm(pool: Pool) -> bool:
    """Return whether nothing is loaded, unloaded or freed."""
    return not (pool.loads or pool.unloads or pool.ledger.freeing or pool.by_state[State.UNLOADING])


def held_until(pool: Pool) -> float:
    """Return until when a load that runs alone blocks others, if it does not end before."""
    begun = [model.operation.since for model in pool.loads.values() if model.operation.alone]
    return max(begun, default=-math.inf) + pool.settings.alone_seconds


def entangled(pool: Pool, model: Model) -> float | None:
    """Return until when, at least, pieces of a model are loading, unloading or draining. None: they are not."""
    pieces = model.pieces
    if any(piece in pool.ledger.going for piece in pieces):
        return pool.now
    if len(pieces) == 1 and not pool.ledger.users.get(model.name):
        return None
    if any(not set(pieces).isdisjoint(other.held) for other in pool.loads.values()):
        return pool.now
    draining = [other for other in pool.by_state[State.DRAINING].values() if not set(pieces).isdisjoint(other.held)]
    return max((max(pool.now, other.leased_until) for other in draining), default=None)


def load(pool: Pool, model: Model, *, margin: int = 0, watch: bool = False) -> None:
    """Begin a load with a `margin` charged until it is measured. `watch`: the load is in progress already."""
    is_alone, clean = alone(pool, model) and not watch, calm(pool) and not watch
    _disturb(pool)
    new = pool.ledger.take(model.name, model.pieces, pool.footprints.of)
    if margin:
        pool.ledger.reserve(model.name, margin)
    model.held = model.pieces
    number = next(pool.numbers)
    since = min((waiter.ticket.since for waiter in model.waiters.values()), default=pool.now)
    queued = pool.now - since
    model.operation = Operation(number, pool.now, new, is_alone, clean, watch, model.wanted_identity, queued)
    model.room_made, model.no_room = False, (-math.inf, -math.inf)
    pool.loads[number] = model
    versions = model.spec.versions if model.spec else ()
    pool.order(messages.Load(number, model.name, versions, is_alone, watch))
    pool.move(model, "begun")


def loaded(pool: Pool, model: Model, measured: int | None, versions: tuple[int, ...], copied: float) -> None:
    """Note a load, with its `measured` growth in bytes, if known, and the `copied` seconds that the next one saves."""
    operation, candidate = model.operation, model.candidate
    seconds = pool.now - operation.since
    learned: dict[str, int] = {}
    if measured is not None and operation.clean and operation.pieces and pool.settings.measures:
        learned = _share(pool, operation.pieces, max(0, measured))
        for piece, size in learned.items():
            pool.footprints.learn(piece, size)
            pool.ledger.recharge(piece, pool.footprints.of(piece))
        pool.ledger.settle([model.name])
    sizes = learned or {piece: pool.ledger.charges[piece] for piece in operation.pieces}
    pool.memory.loaded(operation.number, sizes, measured=bool(learned))
    if not operation.watched:
        model.load_seconds = max(0.0, seconds - copied)
        candidate.copied_seconds = copied
        pool.load_times.append(seconds)
    candidate.load_seconds = pool.load_estimate(model)
    candidate.resident_since = pool.now
    candidate.last_use = max(candidate.last_use, pool.now)
    model.identity, model.versions = operation.identity, versions or operation.identity[1]
    model.failures.count, model.suspect, model.operation, model.refused = 0, False, NO_OPERATION, 0
    pool.move(model, "loaded")
    pool.refresh(model)
    size = pool.ledger.size(model.held)
    pool.report(messages.Loaded(model.name, seconds, size, learned, len(model.waiters), copied, operation.queued))


def failed(pool: Pool, model: Model, why: str) -> None:
    """Note a failed load. The server unloads what it has of the model, and its memory must become free."""
    operation = model.operation
    charges = {piece: pool.ledger.charges[piece] for piece in operation.pieces}
    pool.memory.loaded(operation.number, charges, measured=True)
    blame(pool, model, why)
    unload(pool, model, "failed")


def blame(pool: Pool, model: Model, why: str) -> None:
    """Count a failed load. It is retried later, or not at all after too many."""
    settings, failures = pool.settings, model.failures
    if pool.now - failures.last > settings.failure_memory_seconds:
        failures.count = 0
    failures.count += 1
    failures.last, failures.why = pool.now, why
    backoff = settings.failure_backoff_seconds * 2.0 ** (failures.count - 1)
    failures.not_before = pool.now + backoff
    pool.report(messages.LoadFailed(model.name, why, failures.count, backoff))
    if failures.count >= settings.failures_most:
        failures.quarantined = True
        pool.report(messages.Quarantined(model.name, why))


def evict(
    pool: Pool, model: Model, reason: messages.EvictionReason, wanted_by: str = "", cause: Cause = "evicted"
) -> None:
    """Unload a model without a lease: a resident one, or a draining one with the cause `drained`."""
    idle = max(0.0, pool.now - model.candidate.last_use)
    pool.report(messages.Evicted(model.name, reason, wanted_by, idle, pool.ledger.size(model.held)))
    unload(pool, model, cause)


def vanished(pool: Pool, model: Model) -> None:
    """Unload a resident model that the server dropped. Its leases are void."""
    model.leases.clear()
    pool.memory.vanished()
    evict(pool, model, "vanished", cause="vanished")


def unload(pool: Pool, model: Model, cause: Cause, *, watch: bool = False) -> None:
    """Begin to unload the pieces that no other model needs. `watch`: the unload is in progress already."""
    assert not model.leases, model.name
    gone = pool.ledger.leave(model.name, model.held)
    pool.move(model, cause)
    model.unload_failures = 0
    if gone:
        order_unload(pool, model, gone, watch=watch)
    else:  # Other models need all of it.
        model.operation = NO_OPERATION
        unloaded(pool, model)


def order_unload(pool: Pool, model: Model, names: tuple[str, ...], *, watch: bool = False) -> None:
    """Order an unload, for the first time or again."""
    _disturb(pool)
    number = next(pool.numbers)
    model.operation = Operation(number, pool.now, names, watched=watch)
    model.unload_again = math.inf
    pool.unloads[number] = model
    pool.order(messages.Unload(number, model.name, names, watch))


def unloaded(pool: Pool, model: Model) -> None:
    """Note the end of an unload. Its memory is not free yet."""
    pieces, ordered = model.operation.pieces, model.operation.since or pool.now
    model.operation, model.unload_failures = NO_OPERATION, 0
    expected, sure = pool.memory.unloaded(pieces)
    pool.move(model, "unloaded")
    size = pool.ledger.size(pieces)
    pool.ledger.freeing[model.name] = Freeing(model.name, pieces, size, expected, sure, pool.now, ordered)
    if not pieces or not pool.settings.measures:
        freed(pool, model, 0)


def not_unloaded(pool: Pool, model: Model, why: str) -> None:
    """Note a failed unload. It is ordered again, and after too many the server is restarted."""
    model.unload_failures += 1
    model.unload_again = pool.now + _UNLOAD_BACKOFF
    model.why = why
    pool.dirty = True
    pool.report(messages.UnloadFailed(model.name, why, model.unload_failures))
    if model.unload_failures >= pool.settings.unload_tries:
        pool.recycle(f'the server failed {model.unload_failures} times to unload "{model.name}": {why}')


def freed(pool: Pool, model: Model, leaked: int) -> None:
    """Note that a model's memory is free, except `leaked` bytes."""
    freeing = pool.ledger.freeing.pop(model.name)
    pool.unload_times.append(pool.now - freeing.ordered)
    if leaked:
        pool.report(messages.Leaked(model.name, leaked, pool.memory.leaked))
    pool.ledger.drop(freeing.pieces)
    model.held = ()
    pool.move(model, "freed")
    settle(pool, model)


def settle(pool: Pool, model: Model) -> None:
    """Move a cold model to its next state."""
    if model.spec is None:
        pool.move(model, "removed")
    elif model.failures.quarantined:
        pool.move(model, "gave-up")
    elif model.waiters:
        queue(pool, model)


def queue(pool: Pool, model: Model) -> None:
    """Queue a cold model. A caller that was refused as busy and returns on time keeps its place."""
    if pool.now > model.returns_until:
        model.wanted_since = pool.now
    model.queued_at, model.room_made, model.due = model.wanted_since, False, pool.now
    pool.move(model, "wanted")


def read(pool: Pool) -> None:
    """Evaluate the last reading: what is free again, and what has leaked."""
    settings, ledger, memory = pool.settings, pool.ledger, pool.memory
    for name, lost in memory.back(list(ledger.freeing.values()), settings.tolerance_bytes, settings.freeing_seconds):
        freed(pool, pool.models[name], lost)
    if not calm(pool):
        loading = {piece for model in pool.loads.values() for piece in model.operation.pieces}
        coming = ledger.size(loading) + sum(each.expected_bytes for each in ledger.freeing.values())
        if ledger.margins and memory.is_within(coming + settings.tolerance_bytes):
            _settle_margins(pool, ledger.margins.keys() - {model.name for model in pool.loads.values()})
        return
    leaked, learned = memory.quiet(settings.tolerance_bytes)
    if leaked:
        pool.report(messages.Leaked("", leaked, memory.leaked))
        pool.dirty = True
    for piece, size in learned.items():
        if size > ledger.charges[piece] + settings.tolerance_bytes:
            ledger.recharge(piece, size)
            pool.dirty = True
    _settle_margins(pool, ledger.margins.keys())
    if pool.free < 0 and (leaked > 0 or learned):
        pool.report(messages.Overrun(-pool.free, "a reading shows more memory in use than expected"))
    if memory.leaked > settings.leak_budget:
        pool.recycle(f"{memory.leaked} bytes have leaked, but the limit is {settings.leak_budget}")


def _settle_margins(pool: Pool, models: Iterable[str]) -> None:
    """End margins after a reading. The present charges of these models count as measured."""
    for name in tuple(models):
        for piece in filter(pool.footprints.known, pool.models[name].held):
            pool.footprints.learn(piece, pool.ledger.charges[piece])
        pool.ledger.settle([name])
        pool.dirty = True


def _share(pool: Pool, pieces: tuple[str, ...], measured: int) -> dict[str, int]:
    """Distribute the memory of a load over its pieces: known sizes first, the rest over the others."""
    footprints = pool.footprints
    unknown = [piece for piece in pieces if not footprints.known(piece)] or [pieces[0]]
    shares = {piece: footprints.of(piece) for piece in pieces if piece not in unknown}
    left = rest = max(0, measured - sum(shares.values()))
    whole = sum(footprints.of(piece) for piece in unknown)
    for piece in unknown[1:]:
        shares[piece] = rest * footprints.of(piece) // whole if whole else 0
        left -= shares[piece]
    shares[unknown[0]] = left
    return shares


def _disturb(pool: Pool) -> None:
    for other in pool.loads.values():
        other.operation = replace(other.operation, clean=False)
