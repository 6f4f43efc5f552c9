"""The optimum is the optimum, and the linear program never lies above it."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.simulate.bound import optimum, relaxation
from tidegate_eviction.simulate.trace import SimulationError, Trace

from tests.counts import examples

from .plain import lru, plainly
from .traces import day, only, trace_of


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
                (cost + sum(models[each].load_seconds for each in after - before) for before, cost in costs.items()
                 if held <= before), default=math.inf)
            for after in sets if held | {which} <= after
        }  # fmt: skip
    return min(costs.values(), default=math.inf)


MODELS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)), min_size=4, max_size=4)
REQUESTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=9)


@examples(150)
@given(MODELS, REQUESTS, st.integers(6, 20))
def test_the_optimum_is_what_trying_everything_finds_and_the_relaxation_lies_below(
    models: list[tuple[int, int, int]], requests: list[tuple[int, int]], capacity: int
) -> None:
    times = itertools.accumulate(pause for pause, _ in requests)
    asked = [(float(time), which) for time, (_, which) in zip(times, requests, strict=True)]
    trace = trace_of(asked, *((size, float(load), float(warm)) for size, load, warm in models))
    least = by_trying(trace, capacity)
    if math.isinf(least):
        with pytest.raises(SimulationError, match="cannot all be answered"):
            optimum(trace, capacity)
        with pytest.raises(SimulationError, match="cannot all be answered"):
            relaxation(trace, capacity)
        return
    assert optimum(trace, capacity) == pytest.approx(least, abs=1e-6)
    assert relaxation(trace, capacity) <= least + 1e-6


def test_a_larger_slice_never_needs_more_loading() -> None:
    requests = [(float(time), time * time % 7) for time in range(200)]
    trace = trace_of(requests, *((size, size + 1.0, 0.0) for size in range(3, 10)))
    found = [optimum(trace, capacity) for capacity in range(9, 50, 4)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == sum(trace.models[which].load_seconds for which in set(trace.which))


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_no_plain_policy_beats_the_linear_program_through_a_day(share: float) -> None:
    trace = day()
    capacity = round(share * trace.total_bytes)
    plain = plainly(trace, capacity, lru)
    possible = only(trace, _possible(trace, capacity))
    assert relaxation(possible, capacity) < plain.load_seconds


def _possible(trace: Trace, capacity: int) -> list[int]:
    """Return the requests that can be answered when all before them are."""
    ends: dict[int, float] = {}
    kept = []
    for position, (now, which) in enumerate(trace.requests()):
        held = {each for each, until in ends.items() if until > now} | {which}
        if sum(trace.models[each].footprint_bytes for each in held) <= capacity:
            ends[which] = max(ends.get(which, 0.0), now + trace.models[which].warm_seconds)
            kept.append(position)
    return kept
