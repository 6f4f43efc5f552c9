"""Estimates are held against simulations: they may promise too much, and never by far too little."""

import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.policies.registry import find
from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.zoo import Zoo, generate

from capacity.estimates import Estimates
from tests.counts import examples

POOL = SimulationSetting(find("cost-aware"), 0, idle_seconds=15, wait_seconds=20, lease_seconds=15, residency_factor=1)
SHARES = st.sampled_from([(0.4, 1), (0.5, 2), (0.7, 1), (0.9, 1)])
ZOOS = st.builds(
    Zoo, models=st.integers(3, 40), requests=st.just(2000), hours=st.sampled_from([6.0, 24.0]),
    zipf=st.floats(0.5, 1.5), bursty=st.floats(0, 0.6), nightly=st.floats(0, 0.3), spread=st.floats(0.2, 1.2),
    load_mb_per_second=st.sampled_from([20.0, 100.0, 400.0]), seed=st.integers(0, 10**6),
)  # fmt: skip


def simulated_over_estimated(zoo: Zoo, share: float, replicas: int) -> float:
    """Return how many times more calls of this zoo met a cold model than was estimated."""
    trace = generate(zoo)
    room = round(share * trace.total_bytes / replicas)
    estimated = Estimates(trace).cold([model.name for model in trace.models], room, replicas)
    outcome = simulate(trace, replace(POOL, capacity_bytes=room, replicas=replicas))
    return (len(trace) - outcome.hits) / estimated


@examples(80)
@given(ZOOS, SHARES)
def test_what_misses_a_target_by_far_by_estimate_misses_it(zoo: Zoo, room: tuple[float, int]) -> None:
    assert simulated_over_estimated(zoo, *room) > 0.5


@pytest.mark.parametrize("seed", range(3))
def test_an_estimate_is_right_by_half_as_a_rule(seed: int) -> None:
    zoo = Zoo(models=30, requests=2000, load_mb_per_second=50, seed=seed)
    assert 0.8 < statistics.median(simulated_over_estimated(zoo, share, 1) for share in (0.4, 0.55, 0.7, 0.85)) < 1.5
