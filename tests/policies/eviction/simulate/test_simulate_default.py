"""The loss of callers with the default, against two simple policies, on days that it was not tuned for."""

from dataclasses import replace

import pytest
from tidegate_eviction.simulate.trace import Trace
from tidegate_eviction.simulate.zoo import Workload, generate

from lab.bench.eviction.offline import outcomes

from .plain import trace_of

HOUR = 3600


TIMERS = Workload(models=30, requests=3_000, zipf=1.0, periodic=0.4, load_mb_per_second=50, seed=3)


@pytest.mark.parametrize(("share", "most"), [(25, 0.7), (60, 1.0)])
def test_its_cost_is_below_the_better_of_the_two_with_timers(share: int, most: float) -> None:
    ours, *simple = outcomes(generate(TIMERS), share).values()
    assert ours.lost_seconds <= most * min(each.lost_seconds for each in simple)


CALM = Workload(models=14, bursty=0, nightly=0, footprint_mb=200)
HARD = {
    "sparse": replace(CALM, requests=400, hours=12, zipf=0.5, load_mb_per_second=4),
    "skewed": replace(CALM, models=12, requests=2500, hours=8, zipf=2.0, load_mb_per_second=8),
    "bursts": replace(CALM, requests=2500, hours=12, bursty=0.9, load_mb_per_second=15),
    "nightly": replace(CALM, requests=2500, hours=12, bursty=0.1, nightly=0.5, load_mb_per_second=15),
    "long loads": replace(CALM, requests=1200, hours=8, zipf=0.8, spread=0.5, load_mb_per_second=3),
    "starved": replace(
        CALM, models=9, requests=3000, hours=2, zipf=0.3, footprint_mb=150, spread=0.8, load_mb_per_second=25
    ),
}


@pytest.mark.parametrize(
    ("kind", "seed", "share", "most"),
    [
        ("sparse", 0, 25, 1.05),
        ("sparse", 0, 60, 1.0),
        ("skewed", 0, 25, 0.9),
        ("skewed", 1, 60, 1.0),
        ("bursts", 0, 25, 0.9),
        ("bursts", 2, 40, 1.05),
        ("nightly", 1, 25, 0.75),
        ("nightly", 1, 40, 0.85),
        ("long loads", 0, 40, 1.1),
        ("long loads", 1, 40, 0.9),
        ("starved", 0, 40, 0.8),
        # These are above the limit of 1.1.
        ("skewed", 1, 25, 1.3),
        ("starved", 1, 40, 1.2),
    ],
)
def test_hard_days_cost_no_more_than_they_do(kind: str, seed: int, share: int, most: float) -> None:
    """Against the better of the two simple policies, which is only known after the day."""
    ours, *simple = outcomes(generate(replace(HARD[kind], seed=seed)), share).values()
    assert ours.lost_seconds <= most * min(each.lost_seconds for each in simple)


def scan(models: int, pause: float, load_seconds: float) -> Trace:
    calls = [(number * pause, number % models) for number in range(int(8 * HOUR / pause))]
    return trace_of(calls, *[(1_000_000, load_seconds, 0.1)] * models)


@pytest.mark.parametrize(
    ("models", "pause", "load_seconds"),
    [
        (11, 60.0, 5.0),
        (11, 20.0, 5.0),
        (11, 5.0, 2.0),
        # Callers do not wait as long as these loads take.
        (11, 60.0, 30.0),
        (11, 120.0, 30.0),
        (11, 30.0, 25.0),
        (6, 60.0, 30.0),
    ],
)
def test_slow_cyclic_scans_cost_no_more_than_with_cost_aware(models: int, pause: float, load_seconds: float) -> None:
    ours, _, cost_aware = outcomes(scan(models, pause, load_seconds), 100 * (models - 1) // models + 1).values()
    assert ours.lost_seconds <= cost_aware.lost_seconds
