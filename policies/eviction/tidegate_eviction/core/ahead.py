"""Loads ahead of calls: a model that is called at regular times is loaded just before, where that costs others less.

Its callers would meet a cold model each time: its idle limit is shorter than its period. What is known of traffic are
times between uses, so this is for timers; what comes at random is not foreseen.
"""

import heapq
import math
import statistics
from collections.abc import Iterable

from tidegate_contracts.lease import State

from . import transitions
from .pool import Model, Pool
from .victims import VictimSelector

_GAPS = 8  # So many of the last times between uses are kept, …
_FEWEST = 4  # … of which there must be so many, …
_STEADY = 0.75  # … and such a share of them within a tenth of their median, for a model to have a period.
_NEAR = 0.1
_BURST_SECONDS = 5.0  # Calls that follow each other within this are one use.
_SHORTEST_SECONDS = 30.0  # With a shorter period a model stays resident without this.
_EARLY = 1.1, 1.0, 0.01  # A load begins so many loads, seconds and periods before the call; …
_LATE = 0.0, 2.0, 0.02  # … and waits in its place until as long after it.


def note(pool: Pool, model: Model, gap: float) -> None:
    """Take a time between two uses into account, and foresee the next use after the one that just was."""
    model.expected_until = -math.inf
    if gap <= _BURST_SECONDS:
        return
    model.gaps = (*model.gaps[1 - _GAPS :], gap)
    if period := _period(model.gaps):
        at = model.used_at + period - _margin(pool, model, period, _EARLY)
        heapq.heappush(pool.expected, (at, model.name, model.used_at))


def due(pool: Pool) -> list[Model]:
    """Return the models that are to be loaded ahead now, each once: cold ones, not used since that was foreseen."""
    found = []
    while pool.expected_at <= pool.now:
        _, name, used_at = heapq.heappop(pool.expected)
        model = pool.models.get(name)
        if model is not None and model.state is State.COLD and model.used_at == used_at:
            found.append(model)
    return found


def make_room(pool: Pool, models: Iterable[Model], victims: VictimSelector) -> None:
    """Queue those of these models that there is room for, or that others may go for; callers who wait come first."""
    for model in models:
        full = len(pool.loads) >= pool.settings.loads_at_once
        if pool.by_state[State.QUEUED] or full or not _is_loadable(pool, model):
            return
        if (short := pool.needed(model) - pool.free - pool.ledger.pending) > 0:
            going = victims.choose_ahead(short, model)
            if not going:
                continue
            for victim in going:
                transitions.evict(pool, victim, "ahead", model.name)
        period = _period(model.gaps)
        transitions.queue(pool, model)
        model.room_made = True
        model.room_kept_until = model.expected_until = model.used_at + period + _margin(pool, model, period, _LATE)


def _is_loadable(pool: Pool, model: Model) -> bool:
    spec = model.spec
    if spec is None or spec.problem or model.failures.count or pool.load_measured(model) is None:
        return False
    return pool.whole(model) <= pool.limit(model) - pool.memory.leaked and transitions.entangled(pool, model) is None


def _period(gaps: tuple[float, ...]) -> float:
    """Return the seconds between uses, if they are regular; 0 if they are not."""
    if len(gaps) < _FEWEST:
        return 0.0
    middle = statistics.median_high(gaps)
    near = sum(abs(gap - middle) <= _NEAR * middle for gap in gaps)
    return middle if middle > _SHORTEST_SECONDS and near >= _STEADY * len(gaps) else 0.0


def _margin(pool: Pool, model: Model, period: float, times: tuple[float, float, float]) -> float:
    loads, seconds, periods = times
    return loads * pool.load_estimate(model) + seconds + periods * period
