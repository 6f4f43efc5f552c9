"""Loads ahead of calls: a model that a timer calls loads shortly before its call, if that costs others less.

Otherwise its callers would always meet a cold model, because its idle limit is shorter than the timer's period.
"""

import heapq
import math
import statistics
from collections.abc import Iterable

from tidegate_contracts.lease import State

from . import transitions
from .pool import LOOK_SECONDS, Model, Pool
from .victims import VictimSelector

_GAPS = 8  # The number of intervals between bursts that are kept.
_FEWEST = 4  # The fewest intervals for a period.
_STEADY = 0.75  # This share of the intervals must be within `_NEAR` of their median.
_NEAR = 0.1
_BURST_SECONDS = 5.0  # Calls within this time after the first call of a burst belong to it.
_SHORTEST_SECONDS = 30.0  # With a shorter period a model stays resident anyway.


def note(pool: Pool, model: Model, at: float) -> None:
    """Note a call. If it begins a burst, predict the next one. A retry after `busy` counts at its first call."""
    model.expected_until = -math.inf
    if at <= model.returns_until:
        at = model.wanted_since
    if at - model.burst_at <= _BURST_SECONDS or not pool.settings.policy.breaks_even:
        return
    if model.burst_at > -math.inf:
        model.gaps = (*model.gaps[1 - _GAPS :], at - model.burst_at)
    model.burst_at = at
    if period := _period(model.gaps):
        # A tenth more than the load takes, and a reserve for an early timer.
        early = 1.1 * pool.load_estimate(model) + 1.0 + min(0.01 * period, 5.0)
        heapq.heappush(pool.expected, (at + period - early, model.name, at))


def due(pool: Pool) -> list[Model]:
    """Return the models to load ahead now. Resident ones are kept for their next call."""
    found = []
    while pool.expected_at <= pool.now:
        _, name, burst_at = heapq.heappop(pool.expected)
        model = pool.models.get(name)
        if model is None or model.burst_at != burst_at or not pool.settings.policy.breaks_even:
            continue
        if model.state is State.RESIDENT:
            _expect(pool, model)
            pool.refresh(model)
        elif pool.now < _next_call(model):
            found.append(model)
    return found


def begin(pool: Pool, models: Iterable[Model], victims: VictimSelector) -> None:
    """Queue those models that fit, or for which others can be evicted. Callers who wait, or are due before the call,
    have precedence. The other models are retried until their call."""
    queued = pool.by_state[State.QUEUED]
    is_held = pool.now < transitions.held_until(pool)
    back_at = min((each.back_at for each in pool.refused_busy()), default=math.inf)
    for model in models:
        later = is_held or back_at < _next_call(model)
        later = later or len(pool.loads) + len(queued) >= pool.settings.loads_at_once
        if later or not _is_loadable(pool, model) or not _make_room(pool, model, victims):
            heapq.heappush(pool.expected, (pool.now + LOOK_SECONDS, model.name, model.burst_at))
            continue
        transitions.queue(pool, model)
        model.room_made = True
        model.room_kept_until = _expect(pool, model)
        pool.plan_at = min(pool.plan_at, model.room_kept_until)


def _make_room(pool: Pool, model: Model, victims: VictimSelector) -> bool:
    """Evict others for a model if that pays. Return whether memory is free for it, or will be."""
    given = sum(map(pool.needed, pool.by_state[State.QUEUED].values()))
    short = pool.needed(model) + given - pool.free - pool.ledger.pending
    if short <= 0:
        return True
    going = victims.choose_ahead(short, model)
    for victim in going:
        transitions.evict(pool, victim, "ahead", model.name)
    return bool(going)


def _is_loadable(pool: Pool, model: Model) -> bool:
    """Return whether a load will not disturb others. New models and models that failed are left to their callers."""
    spec = model.spec
    if model.state is not State.COLD or spec is None or spec.problem or model.failures.count:
        return False
    if transitions.alone(pool, model) or pool.margin(model):
        return False
    return pool.whole(model) <= pool.limit(model) - pool.memory.leaked


def _next_call(model: Model) -> float:
    return model.burst_at + _period(model.gaps)


def _expect(pool: Pool, model: Model) -> float:
    """Keep a model for its next call, and return until when."""
    # A reserve for a late timer.
    until = _next_call(model) + 2.0 + min(0.02 * _period(model.gaps), 30.0)
    if pool.breaks_even(model):
        model.expected_until = until
    return until


def _period(gaps: tuple[float, ...]) -> float:
    """Return the seconds between bursts of calls if they are regular, otherwise 0."""
    if len(gaps) < _FEWEST:
        return 0.0
    middle = statistics.median_high(gaps)
    near = sum(abs(gap - middle) <= _NEAR * middle for gap in gaps)
    return middle if middle > _SHORTEST_SECONDS and near >= _STEADY * len(gaps) else 0.0
