"""The engine against the plainest simulation, and against answers by hand."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.policies.registry import find
from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.trace import quantile
from tidegate_eviction.simulate.zoo import Zoo, generate

from tests.counts import examples

from .plain import plainly, trace_of

LRU = SimulationSetting(find("lru"), 10, residency_factor=0)
PLAIN = replace(LRU, instant=True)


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=40),
    st.integers(9, 25),
    st.integers(0, 5),
)
def test_lru_is_the_plain_one_but_that_a_model_idles_from_the_end_of_its_last_request(
    models: list[tuple[int, int, int]], requests: list[tuple[int, int]], capacity: int, idle: int
) -> None:
    times = itertools.accumulate(pause for pause, _ in requests)
    asked = [(float(time), which % len(models)) for time, (_, which) in zip(times, requests, strict=True)]
    trace = trace_of(asked, *((size, float(load), float(warm)) for size, load, warm in models))
    setting = replace(PLAIN, policy=find("lru-idle"), capacity_bytes=capacity, idle_seconds=idle)
    outcome = simulate(trace, setting)
    assert (outcome.busy, outcome.load_seconds) == plainly(trace, capacity, idle)


def test_cost_aware_loads_less_than_lru_in_zoos_of_many_kinds() -> None:
    """No single one is what the policy was made for: over all of them it must be the better one."""
    ratios = []
    for zoo in (Zoo(), Zoo(zipf=0.6, models=30), Zoo(zipf=1.6), Zoo(spread=0), Zoo(bursty=0.9, nightly=0)):
        trace = generate(replace(zoo, requests=3000, seed=5))
        setting = replace(PLAIN, capacity_bytes=round(0.4 * trace.total_bytes))
        ours = simulate(trace, replace(setting, policy=find("cost-aware")))
        ratios.append(ours.load_seconds / simulate(trace, setting).load_seconds)
    assert math.prod(ratios) ** (1 / len(ratios)) < 0.9
    assert max(ratios) < 1.3


A, B, C = (6, 2.0, 1.0), (6, 3.0, 1.0), (4, 1.0, 1.0)
"""Two models of which only one has room in 10, and one that fits beside either."""


Said = dict[str, int | float | list[float]]
FULL = (5, 1.0, 9.0)  # A model of which two have room, and whose requests last.


@pytest.mark.parametrize(
    ("requests", "models", "changes", "said"),
    [
        pytest.param(
            [(0.0, 0), (0.5, 0), (1.5, 0), (4.0, 0)],
            [A],
            {},
            {"loads": 1, "hits": 1, "busy": 0, "waits": [2.0, 1.5, 0.5, 0.0], "load_seconds": 2.0},
            id="who asks while a model loads waits for that load",
        ),
        pytest.param(
            [(0.0, 0), (2.5, 1), (3.0, 1)],
            [A, B],
            {},
            {"busy": 1, "loads": 2, "evictions": 1},
            id="a model that is worked on stays, and who wants its room is busy",
        ),
        pytest.param(
            [(0.0, 0), (2.5, 1)],
            [A, B],
            {"wait_seconds": 9},
            {"busy": 0, "waits": [2.0, 0.5 + 3.0]},
            id="who may wait gets the room when the request has ended",
        ),
        pytest.param([(0.0, 0), (2.5, 1)], [A, B], {"wait_seconds": 3.5}, {"busy": 0}, id="bounded to the moment"),
        pytest.param([(0.0, 0), (2.5, 1)], [A, B], {"wait_seconds": 3.4}, {"busy": 1}, id="and not longer"),
        pytest.param(
            [(0.0, 0), (2.5, 1), (2.6, 2)],
            [A, B, (11, 1.0, 1.0)],
            {"wait_seconds": 3.4},
            {"busy": 1, "too_large": 1, "lost_seconds": 2.0 + 2 * 3.4},
            id="who is refused has lost the whole wait that he might have had, as who is answered what he has waited",
        ),
        pytest.param(
            [(0.0, 0), (2.5, 0)],
            [A],
            {"wait_seconds": 1},
            {"busy": 1, "hits": 1, "loads": 1},
            id="a load that outlasts the wait is refused, and goes on",
        ),
        pytest.param(
            [(0.0, 0), (2.5, 1)],
            [A, B],
            {"wait_seconds": 9, "replicas": 2},
            {"busy": 0, "waits": [2.0, 3.0], "evictions": 0},
            id="who may wait goes where there is room now",
        ),
        pytest.param(
            [(0.0, 0), (2.5, 1), (2.6, 2)],
            [FULL, FULL, (6, 1.0, 1.0)],
            {"wait_seconds": 9, "replicas": 2, "capacity_bytes": 6},
            {"busy": 0, "waits": [1.0, 1.0, 7.4 + 1.0]},
            id="and where there is none, waits where it is had soonest",
        ),
        pytest.param(
            [(0.0, 0), (0.1, 1), (5.0, 2), (5.1, 2), (5.2, 2)],
            [(3, 12.0, 0.1), (3, 1.0, 0.1), (3, 1.0, 0.1)],
            {"loads_at_once": 1, "wait_seconds": 30, "holders": 3},
            {"busy": 0, "waits": [12.0, 12.9, 9.0, 8.9, 8.8]},
            id="who has waited for long goes before a model with more waiters",
        ),
        pytest.param(
            [(0.0, 0), (10.0, 1)],
            [A, B],
            {"unload_seconds": 0.3, "freeing_seconds": 0.4},
            {"busy": 0, "waits": [2.0, 0.3 + 0.4 + 3.0]},
            id="unloads, and memory that comes back late, delay the next load",
        ),
        pytest.param(
            [(0.0, 0), (4.0, 1), (60.0, 1)], [A, B], {}, {"busy": 0}, id="leases that are not kept end with requests"
        ),
        pytest.param(
            [(0.0, 0), (4.0, 1), (60.0, 1)],
            [A, B],
            {"lease_seconds": 10},
            {"busy": 1, "evictions": 1},
            id="kept leases outlive requests",
        ),
        pytest.param(
            [(0.0, 0), *((2.0 + number, 0) for number in range(100)), (103.0, 1)],
            [A, B],
            {"lease_seconds": 6},
            {"hits": 100, "busy": 1},
            id="a request under a kept lease is a hit and renews it",
        ),
        pytest.param(
            [(0.0, 0), (0.1, 1), (0.2, 2)],
            [(3, 1.0, 0.1)] * 3,
            {"loads_at_once": 1, "wait_seconds": 9},
            {"busy": 0, "waits": [1.0, 1.9, 2.8]},
            id="who stands in line for Triton to load is not busy where there is room",
        ),
        pytest.param(
            [(0.0, 0), (0.1, 1), (0.2, 2)],
            [FULL] * 3,
            {"loads_at_once": 1, "wait_seconds": 5},
            {"busy": 1, "answered": 2},
            id="who stands in line is busy when there was no room after all",
        ),
        pytest.param(
            [(0.0, 0), (1.0, 1)],
            [A, (11, 1.0, 1.0)],
            {},
            {"too_large": 1, "busy": 0, "answered": 1},
            id="a model that never fits is told so",
        ),
        *(
            pytest.param(
                [(0.0, 0), (2.5, 1), (2.6, 2)],
                [(6, 2.0, 9.0), (6, 3.0, 9.0), (6, 1.0, 1.0)],
                {"replicas": replicas},
                {"busy": 3 - replicas},
                id=f"a busy one of {replicas} replicas spills over",
            )
            for replicas in (1, 2, 3)
        ),
        pytest.param(
            [(0.0, 0), (1.0, 0)],
            [(3, 9.0, 0.1)],
            {"replicas": 2, "wait_seconds": 5},
            {"busy": 2, "loads": 1},
            id="a model whose load outlasts the wait is not loaded elsewhere, too",
        ),
    ],
)
def test_requests_are_played_as_one_would_by_hand(
    requests: list[tuple[float, int]], models: list[tuple[int, float, float]], changes: dict[str, float], said: Said
) -> None:
    outcome = simulate(trace_of(requests, *models), replace(LRU, **changes))  # type: ignore[arg-type]
    for name, value in said.items():
        found = getattr(outcome, name)
        assert (len(found) if name == "loads" else list(found) if name == "waits" else found) == pytest.approx(value), (
            name
        )


def test_several_replicas_hold_more_models_and_each_model_has_its_place() -> None:
    trace = trace_of([(float(time), time % 8) for time in range(400)], *[(5, 0.1, 0.05)] * 8)
    one, four = (simulate(trace, replace(LRU, replicas=replicas)) for replicas in (1, 4))
    assert len(one.loads) == 400
    assert len(four.loads) < 320  # hashing does not spread eight models evenly
    assert four.answered == one.answered == 400


def test_every_request_is_answered_or_refused_once_whatever_is_simulated() -> None:
    trace = generate(Zoo(models=15, requests=1500, load_mb_per_second=20, seed=2))
    for many in (
        {},
        {"wait_seconds": 5.0},
        {"lease_seconds": 30.0, "holders": 3},
        {"replicas": 3, "holders": 2},
        {"unload_seconds": 1.0, "freeing_seconds": 2.0, "wait_seconds": 20.0},
        {"residency_factor": 10.0},
        {"instant": True},
    ):
        setting = replace(LRU, policy=find("cost-aware"), capacity_bytes=round(0.3 * trace.total_bytes))
        outcome = simulate(trace, replace(setting, **many))
        assert outcome.answered + outcome.busy + outcome.too_large == outcome.requests == len(trace), many
        assert sorted(outcome.positions) == sorted(set(outcome.positions))
        assert all(wait >= 0 for wait in outcome.waits)


def test_quantiles_are_by_nearest_rank() -> None:
    assert [quantile(range(1, 101), percent) for percent in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert quantile([7.0], 50) == 7.0
    assert quantile([], 99) == 0.0


def test_a_pinned_model_is_loaded_at_the_start_of_each_replica_and_no_other_ever_takes_its_room() -> None:
    trace = trace_of([(10.0, 1), (20.0, 2), (30.0, 0), (40.0, 1)], A, B, C)
    setting = replace(LRU, wait_seconds=5.0, replicas=2)
    with_room_for_one = simulate(trace, replace(setting, pinned=frozenset({trace.models[0].name})))
    assert with_room_for_one.loads[:2] == [(0.0, 2.0), (0.0, 2.0)]
    assert (with_room_for_one.too_large, with_room_for_one.evictions) == (2, 0)
    assert simulate(trace, setting).refused == 0


def test_calls_of_one_instant_that_take_no_time_give_their_lease_back_once() -> None:
    trace = trace_of([(1.0, 0), (1.0, 0), (5.0, 1), (9.0, 0), (9.0, 0), (9.0, 0)], (10, 2.0, 0.0), (10, 2.0, 0.0))
    outcome = simulate(trace, replace(LRU, wait_seconds=8.0))
    assert (outcome.answered, outcome.busy, len(outcome.loads)) == (6, 0, 3)
