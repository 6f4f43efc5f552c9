"""The search finds the cheapest slices, and the figures of an answer are those of its simulation."""

import math

import pytest
from tidegate_eviction.simulate.engine import simulate
from tidegate_eviction.simulate.trace import Trace

from capacity.answers import LOADING, Answer, best, loading_for
from capacity.search import Search
from capacity.simulations import Figures, figures, first_loads, only, simulations
from capacity.slices import find_gpu

from .traces import LARGE_AND_SMALL, trace_of

GPU = find_gpu("a100-80gb")


ON_SMALL = Answer(GPU, GPU.slices[0], 1)


def on_one_small(trace: Trace) -> Figures:
    with simulations(trace) as run:
        return run([ON_SMALL.setting], "one pool")[0]


def test_the_cheapest_is_found_with_as_few_slices_of_its_size_as_meet_the_target() -> None:
    rows = Search(LARGE_AND_SMALL, GPU, 0.99).rows()
    found = best(rows, 0.99)
    assert found is not None
    assert not any(row.meets(0.99) and row.answer.share < found.answer.share for row in rows)
    cheaper = [
        Answer(GPU, one, count) for one in GPU.slices for count in range(1, 8) if one.share * count < found.answer.share
    ]
    assert cheaper
    with simulations(LARGE_AND_SMALL) as run:
        simulated = run([answer.setting for answer in cheaper], "cheaper ones")
    for figures_of in simulated:
        assert not (figures_of.share_warm >= 0.99 and figures_of.serves_every_model)


def test_callers_of_a_model_that_is_too_large_are_refused_and_lose_the_whole_wait() -> None:
    trace = trace_of(1, huge=(15, 5.0, 600.0), small=(1, 2.0, 600.0))
    found = on_one_small(trace)
    assert (found.requests, found.answered, found.refused) == (11, 5, 6)
    assert found.lost == {"huge": pytest.approx(6 * 20.0), "small": 0}, "the first load of the small one is not counted"


def test_callers_of_a_first_load_are_excluded_but_not_earlier_refusals() -> None:
    trace = trace_of(1, large=(8, 30.0, 600.0), other=(8, 30.0, 10.0))
    outcome = simulate(trace, ON_SMALL.setting)
    skipped = first_loads(trace, outcome)
    loaded = {which: now for now, which, size in reversed(outcome.memory) if size > 0}
    assert skipped == {
        position
        for position, (seconds, which) in enumerate(trace.requests())
        if which in loaded and loaded[which] - 30 - 1e-6 <= seconds < loaded[which]
    }
    assert figures(trace, 20.0, outcome, skipped).requests == len(trace) - len(skipped)


def test_a_plan_has_its_callers_wait_for_twice_the_longest_load_as_far_as_a_request_may_take() -> None:
    trace = trace_of(1, slow=(1, 25.0, 600.0), fast=(1, 2.0, 600.0))
    assert [loading_for(trace, seconds).wait_seconds for seconds in (60, 45, 10)] == [50, 44, 20]
    assert loading_for(only(trace, {"fast"}), 60) == LOADING
    [row, *_] = Search(trace, GPU, 0.99, loading_for(trace, 60)).rows()
    assert row.answer.setting.wait_seconds == 50
    assert row.figures.refused == 0


@pytest.mark.parametrize("calls", [0, 1, 5])
def test_no_answer_is_recommended_that_locks_a_model_out(calls: int) -> None:
    """Only large slices hold one model, which has only 1 of 200 calls. Without it, small slices meet 99 %."""
    trace = trace_of(5, huge=(15, 1.0, 18000.0 / calls if calls else math.inf), small=(1, 0.1, 18.0))
    rows = Search(trace, GPU, 0.99).rows()
    found = best(rows, 0.99)
    locked = on_one_small(trace)
    assert locked.share_warm >= 0.99
    assert locked.worst_served == (("huge", calls, calls) if calls else None)
    assert not any(row.meets(0.99) for row in rows if row.answer.on == GPU.slices[0])
    assert found is not None
    assert found.figures.serves_every_model


@pytest.mark.parametrize(
    ("refused", "calls", "serves"), [(1, 1, False), (1, 2, True), (2, 2, False), (2, 20, True), (3, 20, False)]
)
def test_a_model_is_served_if_at_most_a_tenth_of_its_calls_is_refused(refused: int, calls: int, serves: bool) -> None:
    assert Figures(refusals={"other": (0, 1), "one": (refused, calls)}).serves_every_model == serves


@pytest.mark.thorough
def test_a_target_that_one_gpu_does_not_meet_is_met_by_several() -> None:
    models = {f"m{number}": (30, 20.0, 300.0 + number) for number in range(6)}
    trace = trace_of(6, **models)
    rows = Search(trace, GPU, 0.98).rows()
    found = best(rows, 0.98)
    assert found is not None
    assert found.answer.share > 1
    one_less = [row for row in rows if row.answer.share < found.answer.share]
    assert one_less
    assert not any(row.meets(0.98) for row in one_less)
