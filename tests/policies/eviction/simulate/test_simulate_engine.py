"""The engine against a trivial simulation, and against results computed by hand."""

from dataclasses import replace

import pytest
from tidegate_eviction.policies.registry import find
from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.trace import quantile
from tidegate_eviction.simulate.zoo import Workload, generate

from .plain import trace_of

LRU = SimulationSetting(find("lru-idle"), 10)


A, B, C = (6, 2.0, 1.0), (6, 3.0, 1.0), (4, 1.0, 1.0)
"""Two models, of which one fits in 10, and one that fits with either."""


@pytest.mark.parametrize(
    ("requests", "models", "changes", "lost_seconds", "refused"),
    [
        pytest.param([(0.0, 0), (0.5, 0), (4.0, 0)], [A], {}, 2.0 + 1.5, 0, id="a caller during the load waits, too"),
        pytest.param([(0.0, 0), (2.5, 1)], [A, B], {"wait_seconds": 3.4}, 2.0 + 3.4, 1, id="a leased model stays"),
        pytest.param([(0.0, 0), (1.0, 1)], [A, (11, 1.0, 1.0)], {}, 2.0 + 20, 1, id="a model that never fits"),
        pytest.param([(0.0, 0), (1.0, 0)], [(3, 9.0, 0.1)], {"replicas": 2, "wait_seconds": 5}, 10, 2, id="long"),
        pytest.param([(0.0, 0), (2.5, 1)], [A, B], {"replicas": 2}, 5.0, 0, id="it is loaded where there is room now"),
    ],
)  # fmt: skip
def test_a_refused_caller_loses_the_whole_wait_and_an_answered_one_its_wait(
    requests: list[tuple[float, int]],
    models: list[tuple[int, float, float]],
    changes: dict[str, float],
    lost_seconds: float,
    refused: int,
) -> None:
    outcome = simulate(trace_of(requests, *models), replace(LRU, **changes))  # type: ignore[arg-type]
    assert outcome.lost_seconds == pytest.approx(lost_seconds)
    assert outcome.refused == refused


def test_every_request_is_served_or_refused_once_in_any_simulation() -> None:
    trace = generate(Workload(models=15, requests=1500, load_mb_per_second=20, seed=2))
    for many in (
        {},
        {"wait_seconds": 5.0},
        {"lease_seconds": 30.0, "holders": 3},
        {"replicas": 3, "holders": 2},
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


def test_a_pinned_model_is_loaded_at_each_replicas_start_and_is_never_evicted() -> None:
    trace = trace_of([(10.0, 1), (20.0, 2), (30.0, 0), (40.0, 1)], A, B, C)
    setting = replace(LRU, wait_seconds=5.0, replicas=2)
    with_room_for_one = simulate(trace, replace(setting, pinned=frozenset({trace.models[0].name})))
    assert with_room_for_one.loads[:2] == [(0.0, 2.0), (0.0, 2.0)]
    assert (with_room_for_one.too_large, with_room_for_one.evictions) == (2, 0)
    assert simulate(trace, setting).refused == 0
