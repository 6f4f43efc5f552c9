"""The offline bound, against trying everything."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.simulate.trace import SimulationError, Trace

from lab.bench.eviction.bound import optimum
from tests.counts import examples
from tests.policies.eviction.simulate.plain import trace_of


def by_trying(trace: Trace, capacity: int) -> float:
    """Return the optimum by trying every set of models at every request."""
    models = trace.models
    sets = [
        frozenset(some)
        for many in range(len(models) + 1)
        for some in itertools.combinations(range(len(models)), many)
        if sum(models[each].footprint_bytes for each in some) <= capacity
    ]
    costs = {frozenset[int](): 0.0}
    ends: dict[int, float] = {}
    for now, which in trace.requests():
        held = {each for each, until in ends.items() if until > now}
        ends[which] = max(ends.get(which, 0.0), now + models[which].warm_seconds)
        costs = {
            after: min(
                (
                    cost + sum(models[each].load_seconds for each in after - before)
                    for before, cost in costs.items()
                    if held <= before
                ),
                default=math.inf,
            )
            for after in sets
            if held | {which} <= after
        }
    return min(costs.values(), default=math.inf)


MODELS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)), min_size=4, max_size=4)
REQUESTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=9)


@examples(150)
@given(MODELS, REQUESTS, st.integers(6, 20))
def test_the_optimum_is_what_trying_everything_finds(
    models: list[tuple[int, int, int]], requests: list[tuple[int, int]], capacity: int
) -> None:
    times = itertools.accumulate(pause for pause, _ in requests)
    asked = [(float(time), which) for time, (_, which) in zip(times, requests, strict=True)]
    trace = trace_of(asked, *((size, float(load), float(warm)) for size, load, warm in models))
    least = by_trying(trace, capacity)
    if math.isinf(least):
        with pytest.raises(SimulationError, match="cannot all be answered"):
            optimum(trace, capacity)
        return
    assert optimum(trace, capacity) == pytest.approx(least, abs=1e-6)
