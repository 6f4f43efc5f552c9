"""Leases: granted, renewed, released and expired. Each waiting caller gets one response, in time."""

import math
from collections.abc import Iterable, Mapping

from tidegate_contracts import lease as wire
from tidegate_contracts.lease import State

from . import ahead, transitions
from .break_even import refused
from .forecast import retry_after
from .messages import Answered, Ticket
from .pool import RETURNING, WANTS_ROOM, Lease, Model, Pool, Waiter

_RECENT = 0.2  # The weight of the latest interval between uses. 0.05 to 0.5 choose much the same.
JITTER = 0.1  # At most this share of `retry_after` is added at random, so that callers do not return all at once.
LATE_SECONDS = 3.0  # A caller may return this much later than `retry_after` and keeps its turn.
SPARE_SECONDS = 10.0  # The time until a proxy that found no unused memory may retry.
_LOADED = (State.RESIDENT, State.DRAINING)
_REASONS: dict[State, wire.BusyReason] = {
    State.LOADING: "loading", State.DRAINING: "draining", State.UNLOADING: "unloading", State.FREEING: "freeing",
}  # fmt: skip


def grant(pool: Pool, model: Model, holder: str, waited: float, incarnation: str) -> wire.Granted:
    """Grant a lease, or extend the holder's. It counts as one request in flight."""
    used(model, pool.now, 0 if waited else 1)  # A caller that has waited was counted at its request.
    ahead.note(pool, model, pool.now - waited)
    lease = hold(pool, model, holder, pool.settings.lease_seconds)
    lease.in_flight = max(1, lease.in_flight)
    pool.serial += 1
    lease.serial, lease.uses = pool.serial, lease.uses + 1
    pool.refresh(model)
    return wire.Granted(
        incarnation=incarnation, lease_seconds=pool.settings.lease_seconds + waited, versions=model.versions,
        waited_seconds=waited, serial=lease.serial,
    )  # fmt: skip


def renew(pool: Pool, holder: str, uses: Mapping[str, wire.Use], *, void: bool) -> tuple[str, ...]:
    """Renew leases, `void` if they belong to another incarnation. Return the models whose leases are lost."""
    lost = []
    for name, use in uses.items():
        model = pool.models.get(name)
        if model is None or model.state not in _LOADED:
            lost.append(name)
            continue
        if not prolong(pool, model, holder, use, void=void):
            lost.append(name)
        if model.state is State.RESIDENT:
            pool.refresh(model)
    return tuple(lost)


def prolong(pool: Pool, model: Model, holder: str, use: wire.Use, *, void: bool) -> bool:
    """Renew a lease on a loaded model. Return whether requests may still begin under it."""
    lease = model.leases.get(holder)
    idle = 0.0 if use.in_flight else use.idle_seconds
    requests = max(0, use.requests - (lease.uses if lease else 0))
    used(model, pool.now - idle, requests)
    if requests:
        ahead.note(pool, model, pool.now - idle)
    kept = not (void or pool.recycling or model.state is State.DRAINING or _let_go(pool, model, use))
    if lease is None and pool.leaving:
        kept = False
    if kept or use.in_flight:
        lease = hold(pool, model, holder, pool.settings.lease_seconds)
    if lease is not None:
        lease.in_flight, lease.uses = use.in_flight, 0
    return kept


def release(pool: Pool, holder: str, names: Iterable[str], serials: Mapping[str, int]) -> None:
    """Release leases, except those granted again since: the message may be late."""
    for name in names:
        model = pool.models.get(name)
        lease = model.leases.get(holder) if model else None
        if lease is not None and serials.get(name, lease.serial) >= lease.serial:
            end(pool, lease, pool.now)


def end(pool: Pool, lease: Lease, at: float) -> None:
    """End a lease. If requests were in flight at the last renewal, it counts as used until now."""
    model = pool.models[lease.model]
    del model.leases[lease.holder]
    if lease.in_flight:
        used(model, at, 0)
    if model.state is State.RESIDENT:
        pool.refresh(model)
    pool.dirty = True


def due(pool: Pool, lease: Lease) -> None:
    """End an expired lease. A lease that was extended is checked again later."""
    model = pool.models.get(lease.model)
    if model is None or model.leases.get(lease.holder) is not lease:
        return
    if lease.ends <= pool.now:
        end(pool, lease, lease.ends)
    else:
        pool.alarm(lease.ends, lease)


def hold(pool: Pool, model: Model, holder: str, seconds: float) -> Lease:
    """Return the holder's lease, created or extended by at least `seconds`."""
    ends = pool.now + seconds
    lease = model.leases.get(holder)
    if lease is None:
        # A lease created by a renewal is newer than all grants, so that a late release cannot end it.
        lease = model.leases[holder] = Lease(model.name, holder, ends, 0, pool.serial + 1)
        pool.alarm(ends, lease)
    else:
        lease.ends = max(lease.ends, ends)
    return lease


def _let_go(pool: Pool, model: Model, use: wire.Use) -> bool:
    """Return whether a lease is not renewed, because its memory may be needed. A new lease is cheap."""
    if use.in_flight or model.spec is None or model.spec.pinned:
        return False
    idle = pool.now - model.candidate.last_use
    if idle >= pool.settings.lease_seconds:
        return True
    return pool.now < pool.pressed_until and idle >= pool.lease_limit(model)


def used(model: Model, at: float, requests: int) -> None:
    """Count requests up to a time. 0: only note that a request was in flight until then."""
    candidate = model.candidate
    candidate.last_use = max(candidate.last_use, at)
    if not requests or at <= model.used_at:
        return
    if model.used_at > -math.inf:
        gap = (at - model.used_at) / requests
        kept = (1 - _RECENT) ** requests if candidate.gap_seconds else 0.0
        candidate.gap_seconds = kept * candidate.gap_seconds + (1 - kept) * gap
    model.used_at = at


def wait(pool: Pool, model: Model, holder: str, seconds: float | None, room: float | None) -> Ticket:
    """Return a ticket for a caller that waits `seconds`, of which `room` for memory. None: as long as allowed."""
    most = pool.settings.wait_seconds
    deadline = pool.now + (most if seconds is None else min(seconds, most))
    ticket = Ticket(next(pool.numbers), model.name, holder, pool.now, deadline)
    is_back = any(begin <= pool.now <= end for begin, end in model.returns)
    waiter = Waiter(ticket, math.inf if room is None else pool.now + room, is_back)
    model.waiters[ticket.number] = waiter
    pool.alarm(deadline, waiter)
    if waiter.room_by < deadline:
        pool.alarm(waiter.room_by, waiter)
    used(model, pool.now, 1)
    if model.state is State.COLD:
        transitions.queue(pool, model)
    pool.dirty = pool.dirty or model.state in (State.QUEUED, State.DRAINING)
    return ticket


def grant_all(pool: Pool, model: Model, incarnation: str) -> None:
    """Grant a lease to every waiting caller of a model."""
    waiters, model.waiters = model.waiters, {}
    for waiter in waiters.values():
        ticket = waiter.ticket
        granted = grant(pool, model, ticket.holder, pool.now - ticket.since, incarnation)
        pool.report(Answered(ticket, granted))
    if pool.now < model.kept_until:
        hold(pool, model, RETURNING, model.kept_until - pool.now)
        pool.refresh(model)


def answer_all(pool: Pool, model: Model, answer: wire.Refusal) -> None:
    """Give every waiting caller of a model the same response."""
    waiters, model.waiters = model.waiters, {}
    for waiter in waiters.values():
        pool.report(Answered(waiter.ticket, answer))
    pool.dirty = pool.dirty or bool(waiters)


def out_of_time(pool: Pool, waiter: Waiter) -> None:
    """Refuse a caller as busy whose wait, or whose wait for memory, is over."""
    ticket = waiter.ticket
    model = pool.models.get(ticket.model)
    if model is None or ticket.number not in model.waiters:
        return
    if ticket.deadline <= pool.now or (
        waiter.room_by <= pool.now and model.state is State.QUEUED and not model.room_made
    ):
        _refuse_busy(pool, model, waiter)


def hopeless(pool: Pool) -> None:
    """Refuse callers as busy that cannot get memory in time. While no leases are granted, refuse all."""
    if not pool.accepts:
        for model in [model for model in pool.models.values() if model.waiters]:
            answer_all(pool, model, busy(pool, model))
        return
    for model in list(pool.by_state[State.QUEUED].values()):
        if (refusal := never(pool, model)) is not None:
            answer_all(pool, model, refusal)
    for state in (State.QUEUED, State.DRAINING):
        for model in list(pool.by_state[state].values()):
            at = model.due if state is State.QUEUED else model.leased_until
            for waiter in list(model.waiters.values()):
                if at > waiter.ticket.deadline:
                    _refuse_busy(pool, model, waiter)


def _refuse_busy(pool: Pool, model: Model, waiter: Waiter) -> None:
    answer = busy(pool, model)
    del model.waiters[waiter.ticket.number]
    pool.report(Answered(waiter.ticket, answer))
    back_at = pool.now + answer.retry_after
    until = back_at + JITTER * answer.retry_after + LATE_SECONDS
    is_only_replica = waiter.room_by > waiter.ticket.since  # Else the proxy tries other replicas.
    if is_only_replica:
        ahead.note(pool, model, waiter.ticket.since)
    if waiter.ticket.since > model.returns_until:
        model.wanted_since = waiter.ticket.since
    near = [each for each in model.returns if each[0] <= until and back_at <= each[1]]
    others = [each for each in model.returns if each not in near and pool.now <= each[1]]
    model.returns = [*others, (min([back_at, *(begin for begin, _ in near)]), max([until, *(end for _, end in near)]))]
    if model.state is State.LOADING:
        model.kept_until = max(model.kept_until, until)
    if model.state is State.QUEUED:
        if is_only_replica:
            model.refused, model.refused_at = refused(pool, model) + 1, pool.now
            model.back_at = min(model.back_at, back_at) if model.back_at > pool.now else back_at
            pool.returning[model.name] = None
        if model.room_made:
            model.room_kept_until = until
        elif not model.waiters:
            pool.dirty = True


def never(pool: Pool, model: Model) -> wire.Refusal | None:
    """Return the refusal of a model whose load cannot succeed. None if it can."""
    if model.spec is None or not model.spec.problem:
        return _too_large(pool, model)
    if model.failures.not_before <= pool.now and not model.failures.quarantined:
        transitions.blame(pool, model, model.spec.problem)
        if model.state is State.COLD:
            transitions.settle(pool, model)
    return failed(pool, model)


def _too_large(pool: Pool, model: Model) -> wire.TooLarge | None:
    """Return the refusal of a model that can never fit. None if it can."""
    whole, limit = pool.whole(model), pool.limit(model)
    if whole <= limit:
        return None
    needs = f"{model.name} needs {whole} bytes ({pool.footprints.source(model.name)})"
    why = f"{needs}, but the limit is {limit}: the pool's capacity minus its pinned models"
    return wire.TooLarge(needed_bytes=whole, capacity_bytes=limit, why=why)


def busy(pool: Pool, model: Model) -> wire.Busy:
    """Return a refusal with the time of the next attempt, and note that memory is wanted."""
    model.busy_at.append(pool.now)
    if pool.leaving:
        return wire.Busy(retry_after=1.0, reason="leaving", why="this replica is shutting down")
    if pool.recycling:
        seconds = min(10.0, pool.settings.retry_most_seconds)
        return wire.Busy(retry_after=seconds, reason="restarting", why="the server will be restarted")
    if not pool.ready:
        return wire.Busy(retry_after=1.0, reason="server-away", why="the server is not ready yet")
    seconds = retry_after(pool, model)
    if model.state is State.QUEUED and model.due > pool.now:
        pool.pressed_until = max(pool.pressed_until, pool.now + seconds + pool.settings.overdue_seconds)
    why = f"{model.name} is {model.state}{': ' if model.why else ''}{model.why}"
    if (reason := _reason(pool, model)) == "no-room":
        first, last = model.no_room
        model.no_room = first if pool.now - last < wire.BUSY_SECONDS else pool.now, pool.now
    return wire.Busy(retry_after=seconds, reason=reason, why=why)


def _reason(pool: Pool, model: Model) -> wire.BusyReason | None:
    if model.state is not State.QUEUED:
        return _REASONS.get(model.state)
    if model.failures.not_before > pool.now:
        return "load-failed"
    return "no-room" if model.why in WANTS_ROOM else "queued"


def unless_spare(pool: Pool, model: Model) -> wire.Busy | None:
    """Return the refusal of a request for unused memory only. None if the model is loading, or fits."""
    before = (model, *pool.by_state[State.QUEUED].values())
    fits = sum(pool.needed(each) + pool.margin(each) for each in before) <= pool.free
    if model.state is State.LOADING or (model.state is State.COLD and fits):
        return None
    return wire.Busy(retry_after=SPARE_SECONDS, reason="no-room", why=f"there is no unused memory for {model.name}")


def failed(pool: Pool, model: Model) -> wire.Busy | wire.Quarantined:
    """Return the refusal after a failed load."""
    failures, settings = model.failures, pool.settings
    if failures.quarantined:
        return quarantined(model)
    return wire.Busy(
        retry_after=min(settings.retry_most_seconds, max(0.0, failures.not_before - pool.now)),
        reason="load-failed",
        why=f"{model.name} failed to load ({failures.count} of {settings.failures_most} times): {failures.why}",
    )


def unknown(name: str) -> wire.Unknown:
    """Return the refusal of an unknown model."""
    return wire.Unknown(why=f"this pool has no model {name}")


def quarantined(model: Model) -> wire.Quarantined:
    """Return the refusal of a quarantined model."""
    return wire.Quarantined(
        why=f"{model.name} failed to load {model.failures.count} times. It is not loaded again until it changes or the "
        f"eviction policy restarts: {model.failures.why}"
    )
