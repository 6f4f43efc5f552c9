"""Who waits, and what he is told: exactly one answer, in time."""

import math

from tidegate_contracts import lease

from ..states import State
from .leasing import Leasing
from .model import Model, Waiter
from .planning import Planner
from .pool import Pool
from .steps import Answered, Ticket
from .work import Works


class Waiting:
    """The tickets, and the words for every answer but a grant."""

    def __init__(self, pool: Pool, works: Works, leasing: Leasing, planner: Planner) -> None:
        self._pool = pool
        self._works = works
        self._leasing = leasing
        self._planner = planner

    def wait(self, model: Model, holder: str, wait: float | None, room: float | None) -> Ticket:
        """Have somebody wait, so many seconds at most, and not longer than the pool allows; `room` of them for room."""
        pool = self._pool
        most = pool.rules.wait_seconds
        deadline = pool.now + (most if wait is None else min(wait, most))
        ticket = Ticket(next(pool.numbers), model.name, holder, pool.now, deadline)
        waiter = Waiter(ticket, math.inf if room is None else pool.now + room)
        model.waiters[ticket.number] = waiter
        pool.alarm(deadline, waiter)
        if waiter.room_by < deadline:
            pool.alarm(waiter.room_by, waiter)
        self._leasing.used(model, pool.now, 1)
        if model.state is State.COLD:
            self._works.queue(model)
        pool.dirty = pool.dirty or model.state in (State.QUEUED, State.DRAINING)
        return ticket

    def grant_all(self, model: Model, incarnation: str) -> None:
        """Give a lease to everybody who waits."""
        pool = self._pool
        waiters, model.waiters = model.waiters, {}
        for waiter in waiters.values():
            ticket = waiter.ticket
            granted = self._leasing.grant(model, ticket.holder, pool.now - ticket.asked, incarnation)
            pool.tell(Answered(ticket, granted))

    def answer_all(self, model: Model, answer: lease.Refusal) -> None:
        """Give everybody who waits for a model the same answer."""
        waiters, model.waiters = model.waiters, {}
        for waiter in waiters.values():
            self._pool.tell(Answered(waiter.ticket, answer))
        self._pool.dirty = self._pool.dirty or bool(waiters)

    def out_of_time(self, waiter: Waiter) -> None:
        """Tell a waiter whose time is over that the model is busy."""
        pool, ticket = self._pool, waiter.ticket
        model = pool.models.get(ticket.model)
        if model is None or ticket.number not in model.waiters:
            return
        if ticket.deadline <= pool.now or (
            waiter.room_by <= pool.now and model.state is State.QUEUED and not model.room_made
        ):
            self._tell_busy(model, waiter)

    def hopeless(self) -> None:
        """Tell those busy who will not get room in their time; all of them, by who leaves or has Triton restarted."""
        pool = self._pool
        if not self._pool.accepts:
            for model in [model for model in pool.models.values() if model.waiters]:
                self.answer_all(model, self.busy(model))
            return
        for model in list(pool.by[State.QUEUED].values()):
            if (too_large := self.too_large(model)) is not None:
                self.answer_all(model, too_large)
        for state in (State.QUEUED, State.DRAINING):
            for model in list(pool.by[state].values()):
                due = model.due if state is State.QUEUED else model.leased_until
                for waiter in list(model.waiters.values()):
                    if due > waiter.ticket.deadline:
                        self._tell_busy(model, waiter)

    def _tell_busy(self, model: Model, waiter: Waiter) -> None:
        pool = self._pool
        busy = self.busy(model)
        del model.waiters[waiter.ticket.number]
        pool.tell(Answered(waiter.ticket, busy))
        if model.state is State.QUEUED:
            comes_back = pool.now + busy.retry_after + pool.rules.overdue_seconds
            model.asked_until = max(model.asked_until, comes_back)
            if model.room_made:
                model.room_kept_until = comes_back
            elif not model.waiters:
                pool.dirty = True

    def too_large(self, model: Model) -> lease.TooLarge | None:
        """Say that a model can never have the room that it needs, if that is so."""
        pool = self._pool
        whole, limit = pool.whole(model), pool.limit(model)
        if whole <= limit:
            return None
        return lease.TooLarge(
            needed_bytes=whole,
            capacity_bytes=limit,
            why=f"{model.name} needs {whole} bytes ({pool.sizes.source(model.name)}), and there are never more than "
            f"{limit} for it: the pool's capacity without what pinned models take",
        )

    def busy(self, model: Model) -> lease.Busy:
        """Say when it is worth while to ask again, and remember that room is wanted."""
        pool = self._pool
        if pool.leaving:
            return lease.Busy(retry_after=1.0, why="this replica is about to leave")
        if pool.recycling:
            return lease.Busy(retry_after=min(10.0, pool.rules.retry_most_seconds), why="Triton is to be restarted")
        if not pool.ready:
            return lease.Busy(retry_after=1.0, why="Triton is not there yet")
        wait = self._planner.retry_after(model)
        if model.state is State.QUEUED and model.due > pool.now:
            pool.pressed_until = max(pool.pressed_until, pool.now + wait)
        return lease.Busy(retry_after=wait, why=f"{model.name} is {model.state}{': ' if model.why else ''}{model.why}")

    def failed(self, model: Model) -> lease.Busy | lease.Quarantined:
        """Say that a load has failed."""
        pool, failures = self._pool, model.failures
        if failures.quarantined:
            return quarantined(model)
        return lease.Busy(
            retry_after=min(pool.rules.retry_most_seconds, max(0.0, failures.not_before - pool.now)),
            why=f"{model.name} failed to load ({failures.count} of {pool.rules.failures_most} times): {failures.why}",
        )


def unknown(name: str) -> lease.Unknown:
    """Say that there is no such model."""
    return lease.Unknown(why=f"this pool has no model {name}")


def quarantined(model: Model) -> lease.Quarantined:
    """Say that a model is not tried any more."""
    return lease.Quarantined(
        why=f"{model.name} failed to load {model.failures.count} times and is not tried again before there is a new "
        f"version of it, or somebody asks: {model.failures.why}"
    )
