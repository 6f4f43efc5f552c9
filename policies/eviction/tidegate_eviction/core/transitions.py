"""Loads and unloads: one at a time of each model, counted until they have ended, and what becomes of them."""

import math

from .events import (
    Evicted,
    EvictionReason,
    Freed,
    Leaked,
    Load,
    LoadBegan,
    Loaded,
    LoadFailed,
    Overrun,
    Quarantined,
    Unload,
    UnloadFailed,
)
from .pool import Model, Operation, Pool
from .states import Cause, State

_UNLOAD_BACKOFF = 5.0
"""Seconds after a failed unload before it is ordered again."""


class ModelTransitions:
    """Moves models from state to state, and orders the loads and unloads that this takes."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    # Loads

    def alone(self, model: Model) -> bool:
        """Tell whether nothing else may go on while a model is loaded: its size is to be measured, or it may have
        brought the server down."""
        pool = self._pool
        unsized = pool.rules.measures and any(
            piece not in pool.room.charges and not pool.sizes.known(piece) for piece in model.pieces
        )
        return unsized or model.suspect

    @property
    def calm(self) -> bool:
        """Whether nothing is loaded, unloaded or freed."""
        pool = self._pool
        return not (pool.loads or pool.unloads or pool.room.freeing or pool.by[State.UNLOADING])

    @property
    def held(self) -> bool:
        """Whether a load is under way beside which nothing may begin."""
        return self._pool.now < self.held_until

    @property
    def held_until(self) -> float:
        """Until when nothing may begin beside a load that is under way, if it does not end before."""
        operations = (model.operation for model in self._pool.loads.values())
        alone = [operation.since for operation in operations if operation is not None and operation.alone]
        return max(alone, default=-math.inf) + self._pool.rules.alone_seconds

    def entangled(self, model: Model) -> float | None:
        """Return until when, at least, pieces of a model are being loaded, unloaded or drained; None: they are not."""
        pool, pieces = self._pool, model.pieces
        if any(piece in pool.room.going for piece in pieces):
            return pool.now
        if len(pieces) == 1 and not pool.room.users.get(model.name):
            return None
        if any(not set(pieces).isdisjoint(other.held) for other in pool.loads.values()):
            return pool.now
        draining = [other for other in pool.by[State.DRAINING].values() if not set(pieces).isdisjoint(other.held)]
        return max((max(pool.now, other.leased_until) for other in draining), default=None)

    def load(self, model: Model, *, watch: bool = False) -> None:
        """Begin a load; `watch`: one that is under way already."""
        pool = self._pool
        alone, clean, needed = self.alone(model) and not watch, self.calm and not watch, pool.needed(model)
        self._disturb()
        new = pool.room.take(model.name, model.pieces, pool.sizes.of)
        model.held = model.pieces
        number = next(pool.numbers)
        model.operation = Operation(number, pool.now, new, alone, clean, watch, model.wanted_identity)
        model.room_made = False
        pool.loads[number] = model
        versions = model.spec.versions if model.spec else ()
        asked = min((waiter.ticket.asked for waiter in model.waiters.values()), default=pool.now)
        pool.tell(LoadBegan(model.name, needed, len(model.waiters), pool.now - asked))
        pool.order(Load(number, model.name, versions, needed, alone, watch))
        pool.move(model, Cause.BEGUN)

    def loaded(self, model: Model, measured: int | None, versions: tuple[int, ...]) -> None:
        """Note that a load has succeeded; `measured` is the bytes by which memory grew, if that is known."""
        pool, operation = self._pool, model.operation
        assert operation is not None
        seconds = pool.now - operation.since
        learned: dict[str, int] = {}
        if measured is not None and operation.clean and operation.pieces and pool.rules.measures:
            learned = self._share(operation.pieces, max(0, measured))
            for piece, size in learned.items():
                pool.sizes.learn(piece, size)
                pool.room.recharge(piece, pool.sizes.of(piece))
        sizes = learned or {piece: pool.room.charges[piece] for piece in operation.pieces}
        pool.memory.loaded(operation.number, sizes, measured=bool(learned))
        if not operation.watched:
            model.load_seconds = seconds
        model.candidate.load_seconds = pool.load_estimate(model)
        model.candidate.resident_since = pool.now
        model.candidate.last_use = max(model.candidate.last_use, pool.now)
        model.identity, model.versions = operation.identity, versions or operation.identity[1]
        model.failures.count, model.suspect, model.operation = 0, False, None
        pool.move(model, Cause.LOADED)
        pool.refresh(model)
        pool.tell(Loaded(model.name, seconds, pool.room.size(model.held), learned, len(model.waiters)))

    def failed(self, model: Model, why: str) -> None:
        """Note that a load has failed: what the server may have of it is unloaded, and its memory must come back."""
        pool, operation = self._pool, model.operation
        assert operation is not None
        charges = {piece: pool.room.charges[piece] for piece in operation.pieces}
        pool.memory.loaded(operation.number, charges, measured=True)
        model.operation = None
        self.blame(model, why)
        self._unload(model, Cause.FAILED)

    def blame(self, model: Model, why: str) -> None:
        """Count a failed load: it is not tried again for a while, and after too many not at all."""
        pool, rules, failures = self._pool, self._pool.rules, model.failures
        if pool.now - failures.last > rules.failure_memory_seconds:
            failures.count = 0
        failures.count += 1
        failures.last, failures.why = pool.now, why
        backoff = rules.failure_backoff_seconds * 2.0 ** (failures.count - 1)
        failures.not_before = pool.now + backoff
        pool.tell(LoadFailed(model.name, why, failures.count, backoff))
        if failures.count >= rules.failures_most:
            failures.quarantined = True
            pool.tell(Quarantined(model.name, why))

    # Unloads

    def evict(self, model: Model, reason: EvictionReason, wanted_by: str = "") -> None:
        """Unload a resident model that has no lease."""
        self._tell_evicted(model, reason, wanted_by)
        self._unload(model, Cause.EVICTED)

    def drained(self, model: Model) -> None:
        """Unload a draining model whose last lease has ended."""
        self._tell_evicted(model, model.drained_for, "")
        self._unload(model, Cause.DRAINED)

    def vanished(self, model: Model) -> None:
        """Unload a resident model that the server has no longer: its leases are void, and what is left of it goes."""
        model.leases.clear()
        self._tell_evicted(model, "vanished", "")
        self._pool.memory.vanished()
        self._unload(model, Cause.VANISHED)

    def watch_unload(self, model: Model) -> None:
        """Wait for an unload that was under way already at the start."""
        self._unload(model, Cause.EVICTED, watch=True)

    def unload_again(self, model: Model) -> None:
        """Order an unload again that has failed."""
        assert model.operation is not None
        self._order_unload(model, model.operation.pieces)

    def unloaded(self, model: Model) -> None:
        """Note that an unload has ended; from now on its memory is waited for."""
        pool, operation = self._pool, model.operation
        assert operation is not None
        model.operation, model.unload_failures = None, 0
        expected, sure = pool.memory.unloaded(operation.pieces)
        pool.move(model, Cause.UNLOADED)
        pool.room.free(model.name, operation.pieces, expected, sure=sure, now=pool.now)
        if not operation.pieces or not pool.rules.measures:
            self.freed(model, 0)

    def not_unloaded(self, model: Model, why: str) -> None:
        """Note that an unload has failed: it is ordered again, and after too many the server is restarted."""
        pool = self._pool
        model.unload_failures += 1
        model.unload_again = pool.now + _UNLOAD_BACKOFF
        model.why = why
        pool.dirty = True
        pool.tell(UnloadFailed(model.name, why, model.unload_failures))
        if model.unload_failures >= pool.rules.unload_tries:
            pool.recycle(f'the server did not unload "{model.name}", {model.unload_failures} times: {why}')

    # Memory

    def freed(self, model: Model, leaked: int) -> None:
        """Note that memory is not waited for any more: a model's room is free, but for the bytes that have leaked."""
        pool = self._pool
        freeing = pool.room.freeing.pop(model.name)
        if leaked:
            pool.tell(Leaked(model.name, leaked, pool.memory.leaked))
        freed = pool.room.drop(freeing.pieces)
        model.held = ()
        pool.tell(Freed(model.name, freed - leaked, pool.now - freeing.since))
        pool.move(model, Cause.FREED)
        self.settle(model)

    def settle(self, model: Model) -> None:
        """Move a model that is cold again to where it belongs."""
        pool = self._pool
        if model.spec is None:
            pool.move(model, Cause.REMOVED)
        elif model.failures.quarantined:
            pool.move(model, Cause.GAVE_UP)
        elif model.waiters:
            self.queue(model)

    def queue(self, model: Model) -> None:
        """Queue a cold model for its load. A caller that was told busy and comes back in time has kept its place."""
        pool = self._pool
        if pool.now > model.asked_until:
            model.asked_since = pool.now
        model.queued_at, model.room_made, model.due = model.asked_since, False, pool.now
        pool.move(model, Cause.WANTED)

    def read(self) -> None:
        """Judge the last reading of memory: what is back, what has leaked."""
        pool = self._pool
        rules, room, memory = pool.rules, pool.room, pool.memory
        for back in memory.back(list(room.freeing.values()), rules.tolerance_bytes, rules.freeing_seconds):
            self.freed(pool.models[back.freeing.model], back.leaked_bytes)
        if not self.calm:
            return
        leaked, learned = memory.quiet(rules.tolerance_bytes)
        if leaked:
            pool.tell(Leaked("", leaked, memory.leaked))
            pool.dirty = True
        for piece, size in learned.items():
            if size > room.charges[piece] + rules.tolerance_bytes:
                room.recharge(piece, size)
                pool.dirty = True
        if pool.free < 0 and (leaked > 0 or learned):
            pool.tell(Overrun(-pool.free, "a reading of memory shows more than was thought"))
        if memory.leaked > rules.leak_budget:
            pool.recycle(f"{memory.leaked} bytes have leaked, and {rules.leak_budget} may")

    def _share(self, pieces: tuple[str, ...], measured: int) -> dict[str, int]:
        """Share what a load took among its pieces: those whose size is known have it, the others the rest."""
        sizes = self._pool.sizes
        unknown = [piece for piece in pieces if not sizes.known(piece)] or [pieces[0]]
        shares = {piece: sizes.of(piece) for piece in pieces if piece not in unknown}
        left = rest = max(0, measured - sum(shares.values()))
        whole = sum(sizes.of(piece) for piece in unknown)
        for piece in unknown[1:]:
            shares[piece] = rest * sizes.of(piece) // whole if whole else 0
            left -= shares[piece]
        shares[unknown[0]] = left
        return shares

    def _tell_evicted(self, model: Model, reason: EvictionReason, wanted_by: str) -> None:
        idle = max(0.0, self._pool.now - model.candidate.last_use)
        self._pool.tell(Evicted(model.name, reason, wanted_by, idle, self._pool.room.size(model.held)))

    def _unload(self, model: Model, cause: Cause, *, watch: bool = False) -> None:
        pool = self._pool
        assert not model.leases, model.name
        gone = pool.room.leave(model.name, model.held)
        pool.move(model, cause)
        model.unload_failures = 0
        if gone:
            self._order_unload(model, gone, watch=watch)
        else:  # other models need all of it
            model.operation = Operation(0, pool.now, ())
            self.unloaded(model)

    def _order_unload(self, model: Model, names: tuple[str, ...], *, watch: bool = False) -> None:
        pool = self._pool
        self._disturb()
        number = next(pool.numbers)
        model.operation = Operation(number, pool.now, names, watched=watch)
        model.unload_again = math.inf
        pool.unloads[number] = model
        pool.order(Unload(number, model.name, names, watch))

    def _disturb(self) -> None:
        for other in self._pool.loads.values():
            if other.operation is not None:
                other.operation.clean = False
