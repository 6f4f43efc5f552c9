"""When an eviction pays: the loss of a refused model's callers against the loss of its victims' callers.

This is the ski-rental rule (Karlin, Manasse, Rudolph and Sleator 1988, "Competitive snoopy caching"): refusals are the
rent, loads the price. Buying when the rent has reached the price never costs more than twice the optimum. Losses are
seconds of callers: the wait of each, and the longest wait for each that is refused.
"""

import math
from collections.abc import Sequence

from ..policies.policy import Candidate
from .pool import Model, Pool

_TIMES = 2  # Losses of the victims count twice, because they too will need memory again.
_STEADY_GAPS = 4  # A model is in use until it had no call for this many mean intervals.


def pays(pool: Pool, wanted: Model, victims: Sequence[Candidate]) -> bool:
    """Return whether a model's callers have lost enough to evict these models, although they were used recently."""
    lost = _lost(pool, wanted)
    return lost > 0 and _TIMES * (loss(pool, victims) + _loss_meanwhile(pool, wanted, victims)) <= lost


def refused(pool: Pool, model: Model) -> float:
    """Return the number of callers refused since a model was last resident. A refusal fades: after the pool's
    `idle_seconds` it counts as a third."""
    return model.refused * math.exp((model.refused_at - pool.now) / max(1.0, pool.settings.idle_seconds))


def loss(pool: Pool, victims: Sequence[Candidate]) -> float:
    """Return the expected loss of the victims' callers. A model that is used less than once in the pool's idle time
    would hardly have stayed until its next use. So it counts less, unless a timer is about to call it."""
    total, horizon = 0.0, pool.settings.idle_seconds
    for victim in victims:
        is_expected = pool.models[victim.name].expected_until > pool.now
        unused = 0.0 if is_expected else max(victim.gap_seconds, pool.now - victim.last_use)
        total += _cold_loss(pool, victim) * (min(1.0, horizon / unused) if unused > 0 else 1.0)
    return total


def _lost(pool: Pool, wanted: Model) -> float:
    """Return the loss of its callers since it was last resident, and of those that wait."""
    most = pool.settings.wait_seconds
    return most * refused(pool, wanted) + max(0.0, most - pool.load_cost(wanted)) * len(wanted.waiters)


def _loss_meanwhile(pool: Pool, wanted: Model, victims: Sequence[Candidate]) -> float:
    """Return the seconds that callers of models in use lose during the load: all are refused."""
    in_use = [
        victim.gap_seconds
        for victim in victims
        if victim.gap_seconds > 0 and pool.now - victim.last_use < _STEADY_GAPS * victim.gap_seconds
    ]
    return sum(pool.settings.wait_seconds * pool.load_cost(wanted) / gap for gap in in_use)


def _cold_loss(pool: Pool, victim: Candidate) -> float:
    """Return the loss of callers by one load. The first waits for all of it, later ones for half of it on average, and
    none loses more than the longest wait. The files may have left the cache by then, so their copy counts too."""
    load, most = victim.load_seconds + victim.copied_seconds, pool.settings.wait_seconds
    calls_per_second = 1 / victim.gap_seconds if victim.gap_seconds > 0 else 0.0
    if load <= most:
        return load * (1 + calls_per_second * load / 2)
    return most * (1 + calls_per_second * (load - most / 2))
