"""Leases, granted, renewed, released and ended; and the callers that wait for one: each gets one answer, in time."""

import math
from collections.abc import Iterable, Mapping

from tidegate_contracts import lease as wire

from .events import Answered, Ticket
from .planner import Planner
from .pool import UNSURE, Lease, Model, Pool, Waiter
from .states import State
from .transitions import ModelTransitions

_RECENT = 0.2
"""How much the latest use counts in the mean time between uses. Anything from 0.05 to 0.5 chooses much the same."""
_LOADED = (State.RESIDENT, State.DRAINING)


class LeaseTable:
    """Which holders have which leases, counted from when they were granted; and what use of models they tell of."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._serial = 0
        """Of the latest grant."""

    def grant(self, model: Model, holder: str, waited: float, incarnation: str) -> wire.Granted:
        """Grant a lease, or prolong the holder's; it counts as one request in flight.

        A caller that has `waited` was counted as a use when it asked.
        """
        pool = self._pool
        self.used(model, pool.now, 0 if waited else 1)
        lease = self._lease(model, holder, pool.rules.lease_seconds)
        lease.in_flight = max(1, lease.in_flight)
        self._serial += 1
        lease.serial = self._serial
        pool.refresh(model)
        return wire.Granted(
            incarnation=incarnation,
            lease_seconds=pool.rules.lease_seconds + waited,
            versions=model.versions,
            waited_seconds=waited,
            serial=lease.serial,
        )

    def hold(self, model: Model, seconds: float) -> None:
        """Count a model that was found at a start as leased for so many seconds, by an unknown holder."""
        self._lease(model, UNSURE, seconds).in_flight = 0
        self._pool.refresh(model)

    def renew(self, holder: str, uses: Mapping[str, wire.Use], *, void: bool) -> tuple[str, ...]:
        """Renew leases, and return the models whose leases are lost.

        `void`: the holder's leases are of another incarnation. What is in flight is not unloaded even then.
        """
        pool, lost = self._pool, []
        for name, use in uses.items():
            model = pool.models.get(name)
            if model is None or model.state not in _LOADED:
                lost.append(name)
                continue
            lease = model.leases.get(holder)
            idle = 0.0 if use.in_flight else use.idle_seconds
            self.used(model, pool.now - idle, use.requests)
            kept = not (void or pool.recycling or model.state is State.DRAINING or self._let_go(model, use))
            if lease is None and pool.leaving:
                kept = False
            if kept or use.in_flight:
                lease = self._lease(model, holder, pool.rules.lease_seconds)
            if lease is not None:
                lease.in_flight = use.in_flight
            if not kept:
                lost.append(name)
            if model.state is State.RESIDENT:
                pool.refresh(model)
        return tuple(lost)

    def release(self, holder: str, names: Iterable[str], serials: Mapping[str, int]) -> None:
        """End leases before their time, but for those that were granted anew since: the message may have been late."""
        for name in names:
            model = self._pool.models.get(name)
            lease = model.leases.get(holder) if model else None
            if lease is not None and serials.get(name, lease.serial) >= lease.serial:
                self.end(lease, self._pool.now)

    def end(self, lease: Lease, at: float) -> None:
        """End a lease. With requests in flight at the last renewal it counts as used until now."""
        pool = self._pool
        model = pool.models[lease.model]
        del model.leases[lease.holder]
        if lease.in_flight:
            self.used(model, at, 0)
        if model.state is State.RESIDENT:
            pool.refresh(model)
        pool.dirty = True

    def is_live(self, lease: Lease) -> bool:
        """Tell whether a lease is still held."""
        model = self._pool.models.get(lease.model)
        return model is not None and model.leases.get(lease.holder) is lease

    def _lease(self, model: Model, holder: str, seconds: float) -> Lease:
        """Return the holder's lease, made or prolonged to live for at least so many seconds."""
        ends = self._pool.now + seconds
        lease = model.leases.get(holder)
        if lease is None:
            # One that a renewal makes is newer than all grants: a late release must not end it.
            lease = model.leases[holder] = Lease(model.name, holder, ends, 0, self._serial + 1)
            self._pool.alarm(ends, lease)
        else:
            lease.ends = max(lease.ends, ends)
        return lease

    def _let_go(self, model: Model, use: wire.Use) -> bool:
        """Tell whether a lease is not renewed: it is cheap to acquire anew, and its room may be wanted."""
        pool = self._pool
        if use.in_flight or model.spec is None or model.spec.pinned or model.name in pool.warm:
            return False
        idle = pool.now - model.candidate.last_use
        if idle >= pool.rules.lease_seconds:
            return True
        return pool.now < pool.pressed_until and idle >= pool.idle_limit(model)

    def used(self, model: Model, at: float, requests: int) -> None:
        """Count requests up to a point in time; 0: only that one was under way until then."""
        candidate = model.candidate
        candidate.last_use = max(candidate.last_use, at)
        if not requests or at <= model.used_at:
            return
        if model.used_at > -math.inf:
            gap = (at - model.used_at) / requests
            kept = (1 - _RECENT) ** requests if candidate.gap_seconds else 0.0
            candidate.gap_seconds = kept * candidate.gap_seconds + (1 - kept) * gap
        model.used_at = at


class WaitQueue:
    """The callers that wait for a lease, and the words of every refusal."""

    def __init__(self, pool: Pool, transitions: ModelTransitions, leases: LeaseTable, planner: Planner) -> None:
        self._pool = pool
        self._transitions = transitions
        self._leases = leases
        self._planner = planner

    def wait(self, model: Model, holder: str, wait: float | None, room: float | None) -> Ticket:
        """Return a ticket for a caller that waits `wait` seconds at most, `room` of them for room; None: as long as the
        pool allows."""
        pool = self._pool
        most = pool.rules.wait_seconds
        deadline = pool.now + (most if wait is None else min(wait, most))
        ticket = Ticket(next(pool.numbers), model.name, holder, pool.now, deadline)
        waiter = Waiter(ticket, math.inf if room is None else pool.now + room)
        model.waiters[ticket.number] = waiter
        pool.alarm(deadline, waiter)
        if waiter.room_by < deadline:
            pool.alarm(waiter.room_by, waiter)
        self._leases.used(model, pool.now, 1)
        if model.state is State.COLD:
            self._transitions.queue(model)
        pool.dirty = pool.dirty or model.state in (State.QUEUED, State.DRAINING)
        return ticket

    def grant_all(self, model: Model, incarnation: str) -> None:
        """Grant a lease to every caller that waits for a model."""
        pool = self._pool
        waiters, model.waiters = model.waiters, {}
        for waiter in waiters.values():
            ticket = waiter.ticket
            granted = self._leases.grant(model, ticket.holder, pool.now - ticket.asked, incarnation)
            pool.tell(Answered(ticket, granted))

    def answer_all(self, model: Model, answer: wire.Refusal) -> None:
        """Give every caller that waits for a model the same answer."""
        waiters, model.waiters = model.waiters, {}
        for waiter in waiters.values():
            self._pool.tell(Answered(waiter.ticket, answer))
        self._pool.dirty = self._pool.dirty or bool(waiters)

    def out_of_time(self, waiter: Waiter) -> None:
        """Answer busy to a caller whose time to wait, or to wait for room, is over."""
        pool, ticket = self._pool, waiter.ticket
        model = pool.models.get(ticket.model)
        if model is None or ticket.number not in model.waiters:
            return
        if ticket.deadline <= pool.now or (
            waiter.room_by <= pool.now and model.state is State.QUEUED and not model.room_made
        ):
            self._tell_busy(model, waiter)

    def hopeless(self) -> None:
        """Answer busy to callers that will not get room in their time; to all while no leases are granted."""
        pool = self._pool
        if not pool.accepts:
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

    def too_large(self, model: Model) -> wire.TooLarge | None:
        """Return the refusal of a model that can never have the room that it needs; None if it can."""
        pool = self._pool
        whole, limit = pool.whole(model), pool.limit(model)
        if whole <= limit:
            return None
        return wire.TooLarge(
            needed_bytes=whole,
            capacity_bytes=limit,
            why=f"{model.name} needs {whole} bytes ({pool.sizes.source(model.name)}), and there are never more than "
            f"{limit} for it: the pool's capacity without what pinned models take",
        )

    def busy(self, model: Model) -> wire.Busy:
        """Return when it is worth while to ask again, and remember that room is wanted."""
        pool = self._pool
        if pool.leaving:
            return wire.Busy(retry_after=1.0, why="this replica is about to leave")
        if pool.recycling:
            return wire.Busy(retry_after=min(10.0, pool.rules.retry_most_seconds), why="the server is to be restarted")
        if not pool.ready:
            return wire.Busy(retry_after=1.0, why="the server is not there yet")
        wait = self._planner.retry_after(model)
        if model.state is State.QUEUED and model.due > pool.now:
            pool.pressed_until = max(pool.pressed_until, pool.now + wait)
        return wire.Busy(retry_after=wait, why=f"{model.name} is {model.state}{': ' if model.why else ''}{model.why}")

    def failed(self, model: Model) -> wire.Busy | wire.Quarantined:
        """Return the refusal after a failed load."""
        pool, failures = self._pool, model.failures
        if failures.quarantined:
            return quarantined(model)
        return wire.Busy(
            retry_after=min(pool.rules.retry_most_seconds, max(0.0, failures.not_before - pool.now)),
            why=f"{model.name} failed to load ({failures.count} of {pool.rules.failures_most} times): {failures.why}",
        )


def unknown(name: str) -> wire.Unknown:
    """Return the refusal of a model that the pool does not have."""
    return wire.Unknown(why=f"this pool has no model {name}")


def quarantined(model: Model) -> wire.Quarantined:
    """Return the refusal of a model that is not tried any more."""
    return wire.Quarantined(
        why=f"{model.name} failed to load {model.failures.count} times and is not tried again before there is a new "
        f"version of it, or is released by hand: {model.failures.why}"
    )
