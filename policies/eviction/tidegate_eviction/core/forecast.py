"""Forecasts when a model is available, for the `retry_after` of refused callers, from measured loads and unloads.

It simulates the queue. The next model with waiting or returning callers loads when a load may begin and memory is free.
Memory becomes free as leases and idle limits end, and after the load of a model its own memory does.
"""

import heapq
import math

from tidegate_contracts.lease import RENEWALS_PER_LEASE, State

from . import transitions
from .planner import overdue_at, turn
from .pool import LOOK_SECONDS, Model, Pool

_SOON = 1.0  # The least assumed duration of something that was never measured.
_STEADY_GAPS = 3  # A model without a call for this many mean intervals is no longer in use.
_JUST_AFTER = 1e-6  # Added to a wait, so that rounding makes no caller come too early.


def retry_after(pool: Pool, model: Model) -> float:
    """Return the seconds until a lease on a model may be available, or its load begins."""
    if model.state is State.LOADING:
        return _load_ends_in(pool, model)
    if model.state is State.QUEUED:
        wait = _begins_at(pool, model) - pool.now + _JUST_AFTER
    elif model.state is State.DRAINING:
        wait = max(0.0, model.leased_until - pool.now) + (pool.unloads_take() or _SOON)
    else:
        wait = pool.unloads_take() or _SOON
    return min(pool.settings.retry_most_seconds, wait)


def _load_seconds(pool: Pool, model: Model) -> float:
    """Return the duration of a load. If none was measured, twice the time that present loads have taken so far."""
    known = pool.load_measured(model)
    if known is None:
        known = pool.loads_take()
    if known is None:
        known = max([_SOON, *(2 * (pool.now - other.operation.since) for other in pool.loads.values())])
    return known


def _load_ends_in(pool: Pool, model: Model) -> float:
    """Return the seconds until a load ends. If it is late, as many as it is late."""
    return abs(_load_seconds(pool, model) - (pool.now - model.operation.since)) or _SOON


def _begins_at(pool: Pool, leaves: Model) -> float:
    """Return when the load of a queued model begins if its caller leaves and returns then."""
    at = now = pool.now
    places = [now + _load_ends_in(pool, model) for model in pool.loads.values()]
    places += [now] * (pool.settings.loads_at_once - len(places))
    if now < transitions.held_until(pool):
        places = [max(places)] * len(places)
    heapq.heapify(places)
    room, room_at, coming = pool.free + sum(pool.ledger.margins.values()), now, _room_to_come(pool)
    to_come, begun = _wanted(pool, leaves), set()
    comes = {each.name: each.back_at - 2 * _JUST_AFTER for each in pool.refused_busy()}
    there: list[tuple[tuple[float | str, ...], float, float, str]] = []
    while True:
        at = max(at, places[0]) if there else max(at, places[0], to_come[0][0])
        while to_come and to_come[0][0] <= at:
            since, until, name = heapq.heappop(to_come)
            is_back = name == leaves.name and until == math.inf  # Others come before it.
            heapq.heappush(there, ((math.inf,) if is_back else turn(pool, pool.models[name], at), since, until, name))
        _, since, until, name = there[0]
        model = pool.models[name]
        needed, is_alone = pool.needed(model), transitions.alone(pool, model)
        while room < needed and coming:
            room_at, bytes_ = heapq.heappop(coming)
            room += bytes_
        begins = max(since, comes.get(name, now), room_at, max(places) if is_alone else places[0])
        if to_come and to_come[0][0] <= begins:
            at = begins  # Others arrive before, and it may be the turn of one of them.
            continue
        heapq.heappop(there)
        if name in begun or begins > until:
            continue
        if model is leaves:
            return begins
        begun.add(name)
        room -= needed
        if name in comes:
            room_at = max(room_at, begins)  # Whole models are evicted for it.
        loaded = begins + _load_seconds(pool, model)
        if is_alone:
            places = [loaded] * len(places)
        else:
            heapq.heapreplace(places, loaded)
        heapq.heappush(coming, (loaded + _stays(pool, model), needed))


def _wanted(pool: Pool, leaves: Model) -> list[tuple[float, float, str]]:
    """Return a heap of when each model is wanted, from and until. It has queued models while a caller waits, models
    with returning callers from their return, and the model whose caller leaves."""
    found = [(max(leaves.due, leaves.failures.not_before), math.inf, leaves.name)]
    for model in pool.by_state[State.QUEUED].values():
        until = max((waiter.ticket.deadline for waiter in model.waiters.values()), default=-math.inf)
        since = max(model.due, model.failures.not_before)
        if since < math.inf:
            found.append((since, math.inf if pool.demanded(model) else until, model.name))
    # Their memory is kept from a moment before they return.
    found += [(model.back_at - LOOK_SECONDS - 2 * _JUST_AFTER, math.inf, model.name) for model in pool.refused_busy()]
    # Overdue models have another turn.
    found += [(max(since, overdue_at(pool, pool.models[name])), until, name) for since, until, name in found]
    heapq.heapify(found)
    return found


def _room_to_come(pool: Pool) -> list[tuple[float, int]]:
    """Return when how many bytes may become free."""
    takes, states = pool.unloads_take(), pool.by_state
    coming = [(_may_go_at(pool, each) + takes, each.candidate.bytes) for each in states[State.RESIDENT].values()]
    coming += [(each.leased_until + takes, pool.ledger.size(each.held)) for each in states[State.DRAINING].values()]
    for each in states[State.LOADING].values():
        ends = pool.now + _load_ends_in(pool, each)
        coming.append((ends + _stays(pool, each), pool.ledger.size(each.operation.pieces)))
    coming.append((pool.now + takes, pool.ledger.pending))
    coming = [each for each in coming if each[0] < math.inf]
    heapq.heapify(coming)
    return coming


def _may_go_at(pool: Pool, model: Model) -> float:
    """Return when a resident model can probably be evicted. One in steady use stays in use for as long again."""
    candidate, limit, settings = model.candidate, pool.idle_limit(model), pool.settings
    silent = _STEADY_GAPS * candidate.gap_seconds + settings.lease_seconds / RENEWALS_PER_LEASE
    at = pool.likely_at(model)
    if 0 < _STEADY_GAPS * candidate.gap_seconds < limit and pool.now - candidate.last_use <= silent:
        at = max(at, 2 * candidate.last_use - candidate.resident_since + limit)
    return max(pool.now, at)


def _stays(pool: Pool, model: Model) -> float:
    """Return how long a model stays after its load, if it is used then."""
    settings = pool.settings
    if pool.demanded(model):
        return math.inf
    kept = min(settings.residency_most_seconds, settings.residency_factor * _load_seconds(pool, model))
    return max(kept, pool.idle_limit(model), pool.given_back_after(pool.lease_limit(model)))
