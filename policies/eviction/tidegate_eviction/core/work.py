"""Loads and unloads: one at a time of each model, counted until they have ended, and what comes of them."""

import math

from ..states import Cause, State
from .model import Model, Work
from .pool import Pool
from .steps import (
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

_UNLOAD_BACKOFF = 5.0
"""Seconds before Triton is told again to unload what it did not."""


class Works:
    """What Triton was told to do."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    # Loads

    def alone(self, model: Model) -> bool:
        """Tell whether nothing else may go on while a model is loaded: its size is to be measured, or it may have
        brought Triton down."""
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
        alone = [model.work.since for model in self._pool.loads.values() if model.work is not None and model.work.alone]
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
        """Begin a load."""
        pool = self._pool
        alone, clean, needed = self.alone(model) and not watch, self.calm and not watch, pool.needed(model)
        self._disturb()
        new = pool.room.take(model.name, model.pieces, pool.sizes.of)
        model.held = model.pieces
        number = next(pool.numbers)
        model.work = Work(number, pool.now, new, alone, clean, watch, model.wanted_identity)
        model.room_made = False
        pool.loads[number] = model
        versions = model.spec.versions if model.spec else ()
        asked = min((waiter.ticket.asked for waiter in model.waiters.values()), default=pool.now)
        pool.tell(LoadBegan(model.name, needed, len(model.waiters), pool.now - asked))
        pool.order(Load(number, model.name, versions, needed, alone, watch))
        pool.move(model, Cause.BEGUN)

    def loaded(self, model: Model, measured: int | None, versions: tuple[int, ...]) -> None:
        """Note that a load has ended well."""
        pool, work = self._pool, model.work
        assert work is not None
        seconds = pool.now - work.since
        learned: dict[str, int] = {}
        if measured is not None and work.clean and work.pieces and pool.rules.measures:
            learned = self._share(work.pieces, max(0, measured))
            for piece, size in learned.items():
                pool.sizes.learn(piece, size)
                pool.room.recharge(piece, pool.sizes.of(piece))
        sizes = learned or {piece: pool.room.charges[piece] for piece in work.pieces}
        pool.memory.loaded(work.number, sizes, measured=bool(learned))
        if not work.watched:
            model.load_seconds = seconds
        model.candidate.load_seconds = pool.load_estimate(model) if work.watched else seconds
        model.candidate.resident_since = pool.now
        model.candidate.last_use = max(model.candidate.last_use, pool.now)
        model.identity, model.versions = work.identity, versions or work.identity[1]
        model.failures.count, model.suspect, model.work = 0, False, None
        pool.move(model, Cause.LOADED)
        pool.refresh(model)
        pool.tell(Loaded(model.name, seconds, pool.room.size(model.held), learned, len(model.waiters)))

    def failed(self, model: Model, why: str) -> None:
        """Note that a load has failed: what Triton may have of it is unloaded, and its memory is to be back."""
        pool, work = self._pool, model.work
        assert work is not None
        charges = {piece: pool.room.charges[piece] for piece in work.pieces}
        pool.memory.loaded(work.number, charges, measured=True)
        model.work = None
        self.blame(model, why)
        self._unload(model, Cause.FAILED)

    def blame(self, model: Model, why: str) -> None:
        """Remember a failure: for a while it is not tried again, and in the end not at all."""
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
        """Unload a resident model that nobody holds a lease on."""
        self._tell_evicted(model, reason, wanted_by)
        self._unload(model, Cause.EVICTED)

    def drained(self, model: Model) -> None:
        """Unload a draining model whose last lease has ended."""
        self._tell_evicted(model, model.drained_for, "")
        self._unload(model, Cause.DRAINED)

    def vanished(self, model: Model) -> None:
        """Unload a resident model that Triton has no longer: what may be left of it goes, its leases are void."""
        model.leases.clear()
        self._tell_evicted(model, "vanished", "")
        self._pool.memory.vanished()
        self._unload(model, Cause.VANISHED)

    def watch_unload(self, model: Model) -> None:
        """Wait for an unload that was under way when we came."""
        self._unload(model, Cause.EVICTED, watch=True)

    def unload_again(self, model: Model) -> None:
        """Tell Triton again to unload what it did not."""
        assert model.work is not None
        self._order_unload(model, model.work.pieces)

    def unloaded(self, model: Model) -> None:
        """Note that Triton's index says so."""
        pool, work = self._pool, model.work
        assert work is not None
        model.work, model.unload_failures = None, 0
        expected, sure = pool.memory.unloaded(work.pieces)
        pool.move(model, Cause.UNLOADED)
        pool.room.free(model.name, work.pieces, expected, sure=sure, now=pool.now)
        if not work.pieces or not pool.rules.measures:
            self.freed(model, 0)

    def not_unloaded(self, model: Model, why: str) -> None:
        """Note that Triton did not unload it: it is told again, and in the end restarted."""
        pool = self._pool
        model.unload_failures += 1
        model.unload_again = pool.now + _UNLOAD_BACKOFF
        model.why = why
        pool.dirty = True
        pool.tell(UnloadFailed(model.name, why, model.unload_failures))
        if model.unload_failures >= pool.rules.unload_tries:
            pool.recycle(f'Triton did not unload "{model.name}", {model.unload_failures} times: {why}')

    # Memory

    def freed(self, model: Model, leaked: int) -> None:
        """Note that nothing is waited for any more: its room is free, but for what has leaked."""
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
        """Have a model that is cold again go where it belongs."""
        pool = self._pool
        if model.spec is None:
            pool.move(model, Cause.REMOVED)
        elif model.failures.quarantined:
            pool.move(model, Cause.GAVE_UP)
        elif model.waiters:
            self.queue(model)

    def queue(self, model: Model) -> None:
        """Have a cold model wait for its load. Who was told busy and comes back in time has kept his place."""
        pool = self._pool
        if pool.now > model.asked_until:
            model.asked_since = pool.now
        model.queued_at, model.room_made, model.due = model.asked_since, False, pool.now
        pool.move(model, Cause.WANTED)

    def read(self) -> None:
        """Judge the last reading of memory: what is back, what has leaked."""
        pool = self._pool
        rules, room, memory = pool.rules, pool.room, pool.memory
        waited = memory.back(list(room.freeing.values()), rules.tolerance_bytes, rules.freeing_seconds)
        for back in waited:
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
        rest = max(0, measured - sum(shares.values()))
        whole = sum(sizes.of(piece) for piece in unknown)
        left = rest
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
        else:  # others need all of it
            model.work = Work(0, pool.now, ())
            self.unloaded(model)

    def _order_unload(self, model: Model, names: tuple[str, ...], *, watch: bool = False) -> None:
        pool = self._pool
        self._disturb()
        number = next(pool.numbers)
        model.work = Work(number, pool.now, names, watched=watch)
        model.unload_again = float("inf")
        pool.unloads[number] = model
        pool.order(Unload(number, model.name, names, watch))

    def _disturb(self) -> None:
        for other in self._pool.loads.values():
            if other.work is not None:
                other.work.clean = False
