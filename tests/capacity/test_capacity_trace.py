"""A trace holds the requests that it was made of, and what was measured of their models."""

from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.simulate.trace import TracedModel

from capacity.trace import Measured, trace_of

NAMES = st.sampled_from(["ant", "bee", "cat", "dog"])


@given(
    st.lists(st.tuples(st.integers(0, 1000).map(float), NAMES)),
    st.dictionaries(NAMES, st.integers(0, 3).map(lambda size: Measured(size, 2.5, 0.25))),
)
def test_every_request_to_a_model_of_known_size_is_there_in_time_order(
    requests: list[tuple[float, str]], measured: dict[str, Measured]
) -> None:
    trace = trace_of(requests, measured)
    kept = [each for each in requests if each[1] in measured and measured[each[1]].footprint_bytes]
    assert [(at, trace.models[which].name) for at, which in trace.requests()] == sorted(kept)
    wanted = {
        TracedModel(name, each.footprint_bytes, 2.5, 0.25) for name, each in measured.items() if each.footprint_bytes
    }
    assert {*trace.models} == wanted
