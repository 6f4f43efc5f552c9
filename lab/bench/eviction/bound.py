"""The fewest seconds of loading that would have been enough, had one known every request beforehand.

Given is one sequence of requests, each with the moment in which work on it began; a model is in memory from then on for
at least `warm_seconds`; footprints of what is in memory never exceed the capacity; loads and unloads take no time, and
a load costs `load_seconds`. No schedule that answers exactly these requests at exactly these moments spends less on
loading. To refuse is a way to load less: so each policy is compared with the bound of the requests that it answered.

The bound is the optimum, by dynamic programming over the sets of models that fit (Bellman). Each request takes a pass
over 2^models sets, so it is for small zoos.
"""

from array import array
from collections import Counter
from collections.abc import Iterator

import numpy as np
from tidegate_eviction.simulate.engine import SimulationSetting
from tidegate_eviction.simulate.trace import Outcome, SimulationError, Trace, shown

MOST_MODELS = 20  # There are a million sets of so many.


def bound_of(trace: Trace, setting: SimulationSetting, outcome: Outcome) -> float | None:
    """Return the fewest seconds of loading for the same answers at the same moments; None for too many models."""
    order = sorted(range(outcome.answered), key=outcome.starts.__getitem__)  # stable: at one time, as they were let in
    starts = array("d", (outcome.starts[each] for each in order))
    served = Trace(trace.models, starts, array("l", (trace.which[outcome.positions[each]] for each in order)))
    if len(set(served.which)) > MOST_MODELS:
        return None
    # The bound of several replicas is that of one slice as large as all of them, which can hold whatever they hold.
    return optimum(served, setting.capacity_bytes * setting.replicas)


def optimum(trace: Trace, capacity_bytes: int) -> float:
    """Return the fewest seconds of loading, exactly but for rounding to milliseconds.

    `least[s]` is what it cost at least to have been able to keep the set s (its bits are models), and is never more for
    a part of a set than for the whole: what is in memory may go at any time, for nothing. So a request for m makes of
    every set s with m the lesser of least[s] and least[s without m] + m's load. As long as requests of m are under way,
    sets without m are impossible; afterwards they cost what they cost with it.
    """
    often = Counter(trace.which)
    # The most used ones get the high bits: their halves of the sets are few long runs of memory.
    bits = {which: bit for bit, which in enumerate(sorted(often, key=lambda each: often[each]))}
    costs = {which: round(trace.models[which].load_seconds * 1e3) for which in often}
    kind = np.int32 if sum(often[which] * costs[which] for which in often) < 1 << 29 else np.int64
    never = 1 << 29 if kind is np.int32 else 1 << 60
    sizes = np.zeros(1 << len(bits), np.int64)
    for which, bit in bits.items():
        sizes.reshape(-1, 2, 1 << bit)[:, 1, :] += trace.models[which].footprint_bytes
    too_large = np.where(sizes > capacity_bytes, never, 0).astype(kind)
    least = np.full(1 << len(bits), never, kind)
    least[0] = 0
    halves = {which: least.reshape(-1, 2, 1 << bit) for which, bit in bits.items()}
    impossible = {which: too_large.reshape(-1, 2, 1 << bit)[:, 1, :] for which, bit in bits.items()}
    steps = list(_steps(trace))
    for model, over in shown(steps, "offline bound", len(steps)):
        for which in over:
            halves[which][:, 0, :] = halves[which][:, 1, :]
        without, within = halves[model][:, 0, :], halves[model][:, 1, :]
        # With a request under way already, it is in every possible set: its other half is `never`, or more.
        np.add(without, kind(costs[model]), out=without)
        np.minimum(within, without, out=within)
        np.maximum(within, impossible[model], out=within)
        without[...] = never
    if (found := int(least.min())) >= never:
        raise SimulationError("These requests cannot all be answered: those under way at once exceed the capacity.")
    return found / 1e3


def _steps(trace: Trace) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each request's model, and the models whose requests have all ended since the step before; several requests
    of one model without another's in between are one step."""
    ends: dict[int, float] = {}
    last = -1
    for second, which in trace.requests():
        end = second + trace.models[which].warm_seconds
        if which == last:
            ends[which] = max(ends[which], end)
            continue
        over = tuple(each for each, until in ends.items() if until <= second)
        for each in over:
            del ends[each]
        ends[which] = max(ends.get(which, 0.0), end)
        last = which
        yield which, over
