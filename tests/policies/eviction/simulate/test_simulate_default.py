"""What callers lose with the default, against the two simple rules, on days that it was not made for."""

import pytest
from tidegate_eviction.simulate.trace import Trace
from tidegate_eviction.simulate.zoo import Zoo, generate

from lab.bench.eviction.offline import lost_seconds

from .plain import trace_of

HOUR = 3600


@pytest.mark.parametrize(
    ("zoo", "most"),
    [
        (Zoo(models=30, requests=3_000, zipf=1.0, periodic=0.4, load_mb_per_second=50, seed=3), 0.7),
        (Zoo(models=20, requests=5_000, load_mb_per_second=20, bursty=0.8, seed=3), 1.1),
        (Zoo(models=40, requests=5_000, seed=3), 1.1),
    ],
    ids=["timers", "bursts", "at random"],
)
@pytest.mark.parametrize("share", [25, 60])
def test_it_is_near_the_better_of_the_two_and_well_below_it_where_timers_call(
    zoo: Zoo, most: float, share: int
) -> None:
    ours, *simple = lost_seconds(generate(zoo), share).values()
    assert ours <= most * min(simple)


def scan(models: int, pause: float, load_seconds: float) -> Trace:
    """Models that are called one after the other, round and round, for eight hours."""
    calls = [(number * pause, number % models) for number in range(int(8 * HOUR / pause))]
    return trace_of(calls, *[(1_000_000, load_seconds, 0.1)] * models)


@pytest.mark.parametrize(
    ("models", "pause", "load_seconds"), [(11, 60.0, 5.0), (11, 20.0, 5.0), (11, 5.0, 2.0), (11, 120.0, 30.0)]
)
def test_slow_cyclic_scans_cost_no_more_than_with_cost_aware(models: int, pause: float, load_seconds: float) -> None:
    ours, _, cost_aware = lost_seconds(scan(models, pause, load_seconds), 100 * (models - 1) // models + 1).values()
    assert ours <= cost_aware
