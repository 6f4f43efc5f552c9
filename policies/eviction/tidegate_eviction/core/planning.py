"""What begins next: which models that are wanted are loaded, and who goes for them."""

import math

from ..states import Cause, State
from .model import Model
from .outlook import Outlook
from .pool import Pool
from .steps import EvictionReason, Recycle
from .work import Works

_SOON = 1.0
"""Seconds after which to ask again, where nobody knows how long something takes."""
_JUST_AFTER = 1e-6
"""Added to a wait, so that rounding does not have anybody come a moment early."""


class Planner:
    """Goes through what is wanted, in order, whenever something has happened."""

    def __init__(self, pool: Pool, works: Works) -> None:
        self._pool = pool
        self._works = works
        self._recycled = False

    def run(self) -> None:
        """Begin what can begin now, and work out when there may be more."""
        pool = self._pool
        pool.dirty = False
        pool.plan_at = math.inf
        if not pool.ready or pool.leaving:
            return
        if pool.recycling:
            self._recycle()
            return
        self._recycled = False
        self._unload()
        self._want()
        outlook = Outlook(pool)
        self._relieve(outlook)
        _Round(pool, self._works, outlook).run()
        pool.dirty = False

    def retry_after(self, model: Model) -> float:
        """Return after how many seconds a lease on a model may be had, or its load begin."""
        pool, wait = self._pool, _SOON
        if model.state is State.LOADING and model.work is not None:
            wait = max(_SOON, pool.load_estimate(model) - (pool.now - model.work.since))
        elif model.state is State.QUEUED and model.due > pool.now:
            wait = model.due - pool.now + _JUST_AFTER
        elif model.state is State.QUEUED and pool.loads and not model.room_made:
            wait = min(
                max(_SOON, pool.load_estimate(other) - (pool.now - other.work.since))
                for other in pool.loads.values()
                if other.work is not None
            )
        elif model.state is State.DRAINING:
            wait = max(0.0, model.leased_until - pool.now) + _SOON
        return min(pool.rules.retry_most_seconds, wait)

    def _recycle(self) -> None:
        """Have Triton restarted, once nobody holds a lease."""
        pool = self._pool
        if not self._recycled and not any(model.leases for model in pool.holding()):
            self._recycled = True
            pool.order(Recycle(pool.recycling))

    def _unload(self) -> None:
        """Unload what has drained, and tell Triton again what it did not do."""
        pool, works = self._pool, self._works
        held = works.held
        if held:
            pool.plan_at = min(pool.plan_at, works.held_until)
        for model in list(pool.by[State.UNLOADING].values()):
            if model.unload_again <= pool.now:
                works.unload_again(model)
            pool.plan_at = min(pool.plan_at, model.unload_again)
        for model in list(pool.by[State.DRAINING].values()):
            if not model.leases and not held:
                works.drained(model)

    def _want(self) -> None:
        """Queue what is pinned or has a warm window; drop what nobody wants any more."""
        pool = self._pool
        for name in (*pool.pinned, *pool.warm):
            model = pool.models.get(name)
            if model is not None and model.state is State.COLD and pool.demanded(model):
                self._works.queue(model)
        for model in list(pool.by[State.QUEUED].values()):
            if model.waiters or pool.demanded(model):
                continue
            if model.room_made and pool.now < model.room_kept_until:
                pool.plan_at = min(pool.plan_at, model.room_kept_until)
            else:
                pool.move(model, Cause.UNWANTED)

    def _relieve(self, outlook: Outlook) -> None:
        """Have models go while more is charged than there is."""
        pool = self._pool
        over = -pool.free - pool.room.pending
        if over <= 0:
            return
        if not self._works.held:
            for victim in outlook.choose(over) or outlook.all():
                self._works.evict(victim, "overrun")
        over = -pool.free - pool.room.pending
        if over > 0 and (due := outlook.due(1)) > pool.now:
            pool.plan_at = min(pool.plan_at, due)


class _Round:
    """One walk along the queue. Room is given in its order; who has room made for him keeps it for himself."""

    def __init__(self, pool: Pool, works: Works, outlook: Outlook) -> None:
        self._pool = pool
        self._works = works
        self._outlook = outlook
        self._held = works.held
        self._ahead = 0
        """Bytes set aside for those further in front."""
        self._passing = 0
        """What of them is set aside for this round only."""
        self._kept: dict[str, int] = {}
        """Bytes that are kept for a model, wherever in the queue it is."""
        self._quiet = False
        """Somebody in front is to be loaded alone, and waits for calm."""
        self._barred = False
        """Somebody in front has waited for long: nobody behind takes room."""

    def run(self) -> None:
        """Walk along."""
        queue = sorted(self._pool.by[State.QUEUED].values(), key=self._place)
        if not queue:
            return
        self._keep(queue)
        for model in queue:
            model.due, model.why = self._pool.now, ""
            self._next(model)
            if model.state is State.QUEUED and model.due > self._pool.now:
                self._pool.plan_at = min(self._pool.plan_at, model.due)

    def _place(self, model: Model) -> tuple[int, int, float, str]:
        if self._pool.demanded(model):
            return 0, 0, model.queued_at, model.name
        if self._overdue(model):
            return 1, 0, model.queued_at, model.name
        return 2, -len(model.waiters), model.queued_at, model.name

    def _overdue(self, model: Model) -> bool:
        return self._pool.now - model.queued_at >= self._pool.rules.overdue_seconds

    def _keep(self, queue: list[Model]) -> None:
        """Keep room for pinned models, those with a warm window, and those that others have gone for."""
        pool = self._pool
        protected = {
            piece
            for name in (*pool.pinned, *pool.warm)
            if (model := pool.models.get(name)) and model.state in (State.RESIDENT, State.LOADING)
            for piece in model.held
        }
        left = pool.rules.capacity_bytes - pool.memory.leaked - pool.room.size(protected)
        for model in queue:
            needed = pool.needed(model)
            if pool.demanded(model) and model.failures.not_before <= pool.now:
                if needed <= left:
                    left -= needed
                    self._kept[model.name] = needed
            elif model.room_made:
                self._kept[model.name] = needed

    def _next(self, model: Model) -> None:
        """Begin the load of a model, make room for it, or say what it waits for."""
        pool, works = self._pool, self._works
        forced, needed = pool.demanded(model), pool.needed(model)
        if not self._fits_at_all(model):
            return
        if (until := works.entangled(model)) is not None:
            model.due, model.why = until, "it, or a part of it, is still being loaded or unloaded for others"
            return
        kept = sum(self._kept.values()) - self._kept.get(model.name, 0)
        coming = pool.free + pool.room.pending - kept - self._passing
        if model.failures.not_before > pool.now:
            room = self._outlook.due(needed - coming, forced=forced, wanted=model.pieces) if needed > coming else 0.0
            model.due = max(model.failures.not_before, room)
            model.why = f"its load failed, and is tried again later: {model.failures.why}"
            return
        if needed <= min(pool.free - self._ahead, coming) and not (self._barred and needed and not forced):
            self._begin(model, needed)
        elif needed <= coming and not (self._barred and not forced):
            model.why = "room for it is being freed"
            self._set_aside(model, needed)
        elif self._held:
            model.why = "another model is being measured: nothing else is loaded or unloaded meanwhile"
        elif self._barred and not forced:
            model.why = "another model has waited for room for longer"
        else:
            self._make_room(model, needed, needed - coming, forced=forced)

    def _fits_at_all(self, model: Model) -> bool:
        """Tell whether there can ever be room; if only what has leaked is in the way, have Triton restarted."""
        pool = self._pool
        whole, limit = pool.whole(model), pool.limit(model)
        if whole > limit:
            model.why = f"it needs {whole} bytes, and may have {limit}"
            model.due = math.inf
            return False
        if whole > limit - pool.memory.leaked:
            model.why = "it does not fit beside what has leaked"
            if self._works.calm:
                pool.recycle(f'"{model.name}" does not fit beside the {pool.memory.leaked} bytes that have leaked')
            return False
        return True

    def _begin(self, model: Model, needed: int) -> None:
        pool, works = self._pool, self._works
        alone = works.alone(model)
        if self._held or self._quiet or (alone and not works.calm) or len(pool.loads) >= pool.rules.loads_at_once:
            model.why = "it waits for its turn: others are being loaded or unloaded"
            self._quiet = self._quiet or alone
            self._set_aside(model, needed)
            return
        self._kept.pop(model.name, None)
        works.load(model)
        self._held = alone

    def _make_room(self, model: Model, needed: int, short: int, *, forced: bool) -> None:
        """Have others go, or work out when they may."""
        pool = self._pool
        reason: EvictionReason = "room"
        if forced:
            reason = "pinned" if model.spec is not None and model.spec.pinned else "window"
        victims = self._outlook.choose(short, forced=forced, wanted=model.pieces)
        if victims:
            for victim in victims:
                self._works.evict(victim, reason, model.name)
            model.room_made, model.why = True, "room for it is being freed"
            model.room_kept_until = pool.now + pool.rules.retry_most_seconds
            self._kept[model.name] = needed
            self._ahead += needed
            return
        model.why = "there is no room: all that is resident is in use, or was too lately"
        due = self._outlook.due(short, forced=forced, wanted=model.pieces)
        if due == math.inf and (pool.loads or pool.by[State.UNLOADING] or pool.room.freeing):
            due = pool.now  # somebody who is being loaded may go later: nobody knows when
        model.due = due
        patience = max((waiter.ticket.deadline for waiter in model.waiters.values()), default=-math.inf)
        if not forced and self._overdue(model) and due <= patience:
            self._barred = True

    def _set_aside(self, model: Model, needed: int) -> None:
        self._ahead += needed
        if model.name not in self._kept:
            self._passing += needed
