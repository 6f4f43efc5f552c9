"""The planner: which wanted models are loaded next, and which resident ones are evicted for them."""

import math
from functools import partial

from tidegate_contracts.lease import State

from . import ahead, transitions
from .messages import EvictionReason, Recycle
from .pool import BARRED, LEAKED, LOOK_SECONDS, NO_ROOM, Model, Pool
from .victims import VictimSelector

_TURN = "it waits for its turn: other models are being loaded or unloaded"


def turn(pool: Pool, model: Model, at: float) -> tuple[int, int, float, str]:
    """Return the sort key for the order in which queued models load at a time."""
    if pool.demanded(model):
        return 0, 0, model.queued_at, model.name
    if at >= overdue_at(pool, model):
        return 1, 0, model.queued_at, model.name
    return 2, -max(1, len(model.waiters)), model.queued_at, model.name


def overdue_at(pool: Pool, model: Model) -> float:
    """Return when a model has waited so long that it precedes models with more callers."""
    return model.queued_at + pool.settings.overdue_seconds


def plan(pool: Pool) -> None:
    """Process the wanted models in order: begin what can begin now, and compute when more may be possible."""
    pool.dirty = False
    pool.plan_at = math.inf
    expected = ahead.due(pool)
    if not pool.ready or pool.leaving:
        return
    if pool.recycling:
        if not pool.restart_ordered and not any(model.leases for model in pool.holding()):
            pool.restart_ordered = True
            pool.order(Recycle(pool.recycling))
        return
    pool.restart_ordered = False
    states = pool.by_state
    held = states[State.QUEUED] or states[State.DRAINING] or states[State.UNLOADING]
    if not (held or pool.pinned or expected):
        if pool.over() > 0:
            _relieve(pool, VictimSelector(pool))
            pool.dirty = False
        return
    _unload(pool)
    _want(pool)
    victims = VictimSelector(pool)
    _relieve(pool, victims)
    if expected:
        ahead.begin(pool, expected, victims)
    _QueuePass(pool, victims).run()
    pool.dirty = False


def _unload(pool: Pool) -> None:
    until = transitions.held_until(pool)
    if pool.now < until:
        pool.plan_at = min(pool.plan_at, until)
    for model in list(pool.by_state[State.UNLOADING].values()):
        if model.unload_again <= pool.now:
            transitions.order_unload(pool, model, model.operation.pieces)
        pool.plan_at = min(pool.plan_at, model.unload_again)
    for model in list(pool.by_state[State.DRAINING].values()):
        if not model.leases and pool.now >= until:
            transitions.evict(pool, model, model.drained_for, cause="drained")


def _want(pool: Pool) -> None:
    for name in pool.pinned:
        model = pool.models.get(name)
        if model is not None and model.state is State.COLD and pool.demanded(model):
            transitions.queue(pool, model)
    for model in list(pool.by_state[State.QUEUED].values()):
        if model.waiters or pool.demanded(model):
            continue
        if model.room_made and pool.now < model.room_kept_until:
            pool.plan_at = min(pool.plan_at, model.room_kept_until)
        else:
            pool.move(model, "unwanted")
            transitions.settle(pool, model)


def _relieve(pool: Pool, victims: VictimSelector) -> None:
    if (over := pool.over()) <= 0:
        return
    if pool.now >= transitions.held_until(pool):
        for victim in victims.choose(over) or victims.all():
            transitions.evict(pool, victim, "overrun")
    if pool.over() > 0 and (due := victims.due(1)) > pool.now:
        pool.plan_at = min(pool.plan_at, due)


class _QueuePass:
    """One pass over the queue. Memory is assigned in its order, and memory freed for a model is kept for it."""

    def __init__(self, pool: Pool, victims: VictimSelector) -> None:
        self._pool = pool
        self._victims = victims
        self._held = pool.now < transitions.held_until(pool)
        self._ahead = 0  # Bytes reserved for models further in front.
        self._passing = 0  # The part of them that is reserved for this pass only.
        self._kept: dict[str, int] = {}  # Bytes kept for a model, wherever it is in the queue.
        self._in_turn: set[str] = set()  # Models that have memory, or will, and load at their turn.
        self._quiet = False  # A model in front must load alone, and waits for a quiet moment.
        self._barred = False  # A model in front is overdue: models behind it take no memory.

    def run(self) -> None:
        pool = self._pool
        queue = sorted(pool.by_state[State.QUEUED].values(), key=partial(turn, pool, at=pool.now))
        if not queue:
            return
        self._keep(queue)
        about = [model for model in pool.refused_busy() if model.back_at - LOOK_SECONDS <= pool.now < model.back_at]
        for model in sorted({*queue, *about}, key=partial(turn, pool, at=pool.now)):
            if model.state is State.COLD:
                self._expect(model)
                continue
            model.due, model.why = pool.now, ""
            self._next(model)
            if model.state is State.QUEUED and model.due > pool.now:
                pool.plan_at = min(pool.plan_at, model.due)

    def _keep(self, queue: list[Model]) -> None:
        """Keep memory for pinned models and for models that others were evicted for. If memory has leaked since, the
        first of the latter get it: otherwise all would wait for each other."""
        pool = self._pool
        protected = {
            piece
            for name in pool.pinned
            if (model := pool.models.get(name)) and model.state in (State.RESIDENT, State.LOADING)
            for piece in model.held
        }
        left = pool.settings.capacity_bytes - pool.memory.leaked - pool.ledger.size(protected)
        made = pool.free + pool.ledger.pending
        for model in queue:
            needed = pool.needed(model)
            if pool.demanded(model) and model.failures.not_before <= pool.now:
                if needed <= left:
                    left -= needed
                    made -= needed
                    self._kept[model.name] = needed
            elif model.room_made and needed <= made:
                made -= needed
                self._kept[model.name] = needed
            else:
                model.room_made = False
            if model.room_made:
                self._in_turn.add(model.name)

    def _expect(self, model: Model) -> None:
        """Reserve memory for a model whose turn it is and whose callers return soon, perhaps a moment early."""
        pool = self._pool
        pool.plan_at = min(pool.plan_at, model.back_at)
        needed, coming = pool.needed(model), self._coming(model)
        if needed <= coming or self._victims.choose(needed - coming, wanted=model.pieces, is_plan=True):
            self._passing += min(needed, max(0, coming))

    def _coming(self, model: Model) -> int:
        """Return the bytes that a model can have once the memory that is being freed is free."""
        kept = sum(self._kept.values()) - self._kept.get(model.name, 0)
        return self._pool.free + self._pool.ledger.pending - kept - self._passing

    def _next(self, model: Model) -> None:
        """Begin the load of a model, free memory for it, or note what it waits for."""
        pool = self._pool
        forced, needed, margin = pool.demanded(model), pool.needed(model), pool.margin(model)
        if not self._fits_at_all(model):
            return
        if (until := transitions.entangled(pool, model)) is not None:
            model.due, model.why = until, "the model, or a part of it, is being loaded or unloaded for another model"
            return
        coming = self._coming(model)
        if model.failures.not_before > pool.now:
            room = self._victims.due(needed - coming, forced=forced, wanted=model.pieces) if needed > coming else 0.0
            model.due = max(model.failures.not_before, room)
            model.why = f"its load failed and will be retried: {model.failures.why}"
            return
        barred = self._barred and not (forced or model.room_made)
        if needed + margin <= min(pool.free - self._ahead, coming) and not (barred and needed):
            self._begin(model, needed, margin)
        elif needed + margin <= coming and not barred:
            self._is_being_freed(model, needed)
        elif self._held:
            model.why = "another model is being measured, so no other model is loaded or unloaded now"
        elif barred:
            model.why = BARRED
        elif len(pool.loads) + len(self._in_turn - {model.name}) >= pool.settings.loads_at_once:
            model.why = _TURN  # An eviction now would only cost calls until the load begins.
        else:
            self._make_room(model, needed, margin, coming, forced=forced)

    def _fits_at_all(self, model: Model) -> bool:
        """Return whether a model can ever be loaded. If only the leak prevents it, request a restart of the server."""
        pool = self._pool
        if model.spec and model.spec.problem:
            model.why, model.due = model.spec.problem, math.inf
            return False
        whole, limit = pool.whole(model), pool.limit(model)
        if whole > limit:
            model.why = f"it needs {whole} bytes, but the limit is {limit}"
            model.due = math.inf
            return False
        if whole > limit - pool.memory.leaked:
            model.why = LEAKED
            if transitions.calm(pool):
                pool.recycle(f'"{model.name}" does not fit, because {pool.memory.leaked} bytes have leaked')
            return False
        return True

    def _begin(self, model: Model, needed: int, margin: int) -> None:
        pool = self._pool
        alone = transitions.alone(pool, model)
        full = len(pool.loads) >= pool.settings.loads_at_once
        if self._held or self._quiet or full or (alone and not transitions.calm(pool)):
            model.why = _TURN
            self._quiet = self._quiet or alone
            self._set_aside(model, needed)
            return
        self._kept.pop(model.name, None)
        self._in_turn.discard(model.name)
        transitions.load(pool, model, margin=margin)
        self._held = alone

    def _make_room(self, model: Model, needed: int, margin: int, coming: int, *, forced: bool) -> None:
        pool, short = self._pool, needed - coming
        reason: EvictionReason = "pinned" if forced else "room"
        victims = self._chosen(model, short + margin, forced=forced)
        if not victims and margin:  # The margin yields if all other models are in use.
            if short <= 0:
                room = min(pool.free - self._ahead, coming)
                if needed <= room:
                    self._begin(model, needed, room - needed)
                else:
                    self._is_being_freed(model, needed)
                return
            victims = self._chosen(model, short, forced=forced)
        if victims:
            for victim in victims:
                transitions.evict(pool, victim, reason, model.name)
            model.room_made, model.why = True, "memory for it is being freed"
            model.room_kept_until = pool.now + pool.settings.retry_most_seconds
            self._kept[model.name] = needed
            self._ahead += needed
            self._in_turn.add(model.name)
            return
        model.why = NO_ROOM
        short -= sum(pool.ledger.margins.values())  # Margins end soon.
        due = self._victims.due(short, forced=forced, wanted=model.pieces)
        if due == math.inf and (pool.loads or pool.by_state[State.UNLOADING] or pool.ledger.freeing):
            due = pool.now  # A loading model may be evicted later, at an unknown time.
        model.due = due
        pool.pressed_until = max(pool.pressed_until, min(due, pool.now + pool.settings.retry_most_seconds))
        patience = max((waiter.ticket.deadline for waiter in model.waiters.values()), default=-math.inf)
        if not forced and pool.now >= overdue_at(pool, model) and due <= patience:
            self._barred = True

    def _chosen(self, model: Model, needed: int, *, forced: bool) -> list[Model]:
        if self._pool.settings.policy.breaks_even and not forced:
            return self._victims.choose_paying(needed, model)
        return self._victims.choose(needed, forced=forced, wanted=model.pieces)

    def _is_being_freed(self, model: Model, needed: int) -> None:
        model.why = "memory for it is being freed"
        self._set_aside(model, needed)

    def _set_aside(self, model: Model, needed: int) -> None:
        self._ahead += needed
        self._in_turn.add(model.name)
        if model.name not in self._kept:
            self._passing += needed
