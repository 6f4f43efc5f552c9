"""When an eviction pays: what callers of a refused model have lost, against what callers of its victims would lose.

This is the ski-rental rule (Karlin, Manasse, Rudolph and Sleator 1988, "Competitive snoopy caching"): refusals are the
rent, loads the price, and who buys once the rent has come to the price never pays more than twice what was needed.
Losses are seconds of callers: what each waits, and the whole bound on waits for each that is refused.
"""

import math
from collections.abc import Sequence

from ..policies.policy import Candidate
from .pool import Model, Pool

_TIMES = 2  # What victims would lose counts twice: they, too, come back for their room.
_STEADY_GAPS = 4  # A model is in use until it has had no call for so many times the mean time between its calls.


def pays(pool: Pool, wanted: Model, victims: Sequence[Candidate]) -> bool:
    """Tell whether a model's callers have lost enough for these to be evicted, though they were used lately."""
    lost = _lost(pool, wanted)
    return lost > 0 and _TIMES * (loss(pool, victims) + _loss_meanwhile(pool, wanted, victims)) <= lost


def refused(pool: Pool, model: Model) -> float:
    """Return how many callers were refused since a model was last resident. A refusal fades: one that is as old as the
    pool's `idle_seconds` counts as a third."""
    return model.refused * math.exp((model.refused_at - pool.now) / max(1.0, pool.settings.idle_seconds))


def loss(pool: Pool, victims: Sequence[Candidate]) -> float:
    """Return what callers are expected to lose when these are evicted. What is used less than once in an idle time of
    the pool would hardly have stayed until its next use: it counts by so much less, unless a timer calls it now."""
    total, horizon = 0.0, pool.settings.idle_seconds
    for victim in victims:
        is_expected = pool.models[victim.name].expected_until > pool.now
        unused = 0.0 if is_expected else max(victim.gap_seconds, pool.now - victim.last_use)
        total += _cold_loss(pool, victim) * (min(1.0, horizon / unused) if unused > 0 else 1.0)
    return total


def _lost(pool: Pool, wanted: Model) -> float:
    """Return what its callers lost since it was last resident, and what those who wait would lose without it now."""
    most = pool.settings.wait_seconds
    return most * refused(pool, wanted) + max(0.0, most - pool.load_cost(wanted)) * len(wanted.waiters)


def _loss_meanwhile(pool: Pool, wanted: Model, victims: Sequence[Candidate]) -> float:
    """Return the seconds that callers of models in use lose while a load takes the models' room: all are refused."""
    in_use = [
        victim.gap_seconds
        for victim in victims
        if victim.gap_seconds > 0 and pool.now - victim.last_use < _STEADY_GAPS * victim.gap_seconds
    ]
    return sum(pool.settings.wait_seconds * pool.load_cost(wanted) / gap for gap in in_use)


def _cold_loss(pool: Pool, victim: Candidate) -> float:
    """Return what callers lose to one load: the first waits for all of it, those who come meanwhile for half of it;
    nobody loses more than the bound on waits. Its files may have left the tier by then, so their copy counts too."""
    load, most = victim.load_seconds + victim.copied_seconds, pool.settings.wait_seconds
    calls_per_second = 1 / victim.gap_seconds if victim.gap_seconds > 0 else 0.0
    if load <= most:
        return load * (1 + calls_per_second * load / 2)
    return most * (1 + calls_per_second * (load - most / 2))
