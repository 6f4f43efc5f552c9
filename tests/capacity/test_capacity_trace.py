from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.simulate.trace import TracedModel

from capacity.trace import Measured, Recording, trace_of
from stacks.command import CommandError

NAMES = st.sampled_from(["ant", "bee", "cat"])
CALLS = st.dictionaries(
    st.tuples(st.sampled_from(["main", "other"]), NAMES), st.lists(st.integers(0, 1000).map(float)), max_size=6
)
FOX = {"fox": Measured(100, 2.0)}


def recording(calls: dict[tuple[str, str], list[float]], measured: dict[str, Measured]) -> Recording:
    return Recording({key: array("d", each) for key, each in calls.items()}, measured)


@given(CALLS, st.dictionaries(NAMES, st.integers(0, 3).map(lambda size: Measured(size, 2.5, 0.25))))
def test_every_call_of_a_model_of_known_size_is_there_in_time_order(
    calls: dict[tuple[str, str], list[float]], measured: dict[str, Measured]
) -> None:
    calls[("main", "fox")] = [0.0]
    trace, notes = trace_of(recording(calls, measured | FOX))
    known = {name for name, each in (measured | FOX).items() if each.footprint_bytes}
    expected = sorted((at, model) for (_, model), times in calls.items() for at in times if model in known)
    names = [each.name.rpartition("/")[2] for each in trace.models]
    assert sorted((at, names[which]) for at, which in trace.requests()) == expected
    assert list(trace.seconds) == sorted(trace.seconds)
    assert {*names} == known, "models without calls need memory too"
    assert [note for note in notes if "no eviction policy" in note] == [
        note for note in notes if any(model not in known for _, model in calls)
    ]


def test_models_of_one_name_on_two_servers_stay_two() -> None:
    trace, _ = trace_of(
        recording({("a", "fox"): [1.0], ("b", "fox"): [2.0], ("b", "owl"): [3.0]}, FOX | {"owl": FOX["fox"]})
    )
    assert [each.name for each in trace.models] == ["a/fox", "b/fox", "owl"]


def test_a_load_that_was_never_measured_is_estimated_by_size_and_reported() -> None:
    known = {"ant": Measured(100, 1.0), "bee": Measured(100, 2.0), "cat": Measured(100, 9.0), "whale": Measured(1000)}
    trace, notes = trace_of(recording({("main", "whale"): [1.0]}, known))
    assert TracedModel("whale", 1000, 20.0, 0.0) in trace.models
    assert notes == ["load times of whale: never measured, so estimated by size"]


@pytest.mark.parametrize(
    ("known", "why"),
    [({}, r"The memory of fox is unknown"), ({"fox": Measured(1)}, "No load time of any model is known")],
)
def test_a_trace_with_which_nothing_can_be_simulated_is_not_made(known: dict[str, Measured], why: str) -> None:
    with pytest.raises(CommandError, match=why):
        trace_of(recording({("main", "fox"): [1.0]}, known))
