"""What the simulator does not tell of one by one changes no answer."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.policies.registry import find
from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.trace import Outcome

from tests.counts import examples

from .one_by_one import one_by_one
from .plain import trace_of

# Odd numbers of milliseconds: hardly anything happens at the very moment of something else.
SECONDS = st.integers(1, 40_000).map(lambda each: each * 0.000977)
MODELS = st.lists(st.tuples(st.integers(3, 9), SECONDS.map(lambda each: each / 3), SECONDS.map(lambda each: each / 9)),
                  min_size=2, max_size=7)  # fmt: skip
PAUSES = st.one_of(SECONDS.map(lambda each: each / 20), SECONDS)
REQUESTS = st.lists(st.tuples(PAUSES, st.integers(0, 6)), min_size=1, max_size=120)
SETTINGS = st.builds(
    SimulationSetting, policy=st.sampled_from(["break-even", "lru-idle", "lru", "cost-aware"]).map(find),
    capacity_bytes=st.integers(6, 30), idle_seconds=st.sampled_from([0.0, 5.0, 40.0]),
    wait_seconds=st.sampled_from([3.0, 20.0]), lease_seconds=st.sampled_from([1.5, 6.0, 15.0]),
    replicas=st.integers(1, 3), holders=st.integers(1, 3), residency_factor=st.sampled_from([0.0, 1.0]),
    unload_seconds=st.sampled_from([0.0, 0.31]), freeing_seconds=st.sampled_from([0.0, 0.47]),
    loads_at_once=st.integers(1, 4),
)  # fmt: skip


def answers(outcome: Outcome) -> object:
    """Return what came of each request, and of the models, to a microsecond."""
    told = zip(outcome.positions, outcome.starts, outcome.waits, strict=True)
    loads = [(round(begin, 6), seconds) for begin, seconds in outcome.loads]
    counts = outcome.requests, outcome.hits, outcome.busy, outcome.too_large, outcome.evictions
    return counts, loads, sorted((position, round(start, 6), round(wait, 6)) for position, start, wait in told)


@examples(200)
@given(MODELS, REQUESTS, SETTINGS)
def test_each_request_is_answered_as_if_every_one_were_told_of_by_itself(
    models: list[tuple[int, float, float]], requests: list[tuple[float, int]], setting: SimulationSetting
) -> None:
    times = itertools.accumulate(pause for pause, _ in requests)
    asked = [(time, which % len(models)) for time, (_, which) in zip(times, requests, strict=True)]
    trace = trace_of(asked, *models)
    assert answers(simulate(trace, setting)) == answers(one_by_one(trace, setting))
