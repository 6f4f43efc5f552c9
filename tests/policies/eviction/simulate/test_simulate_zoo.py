"""Synthetic zoos are what they are said to be, and the same again for the same seed."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import pytest
from tidegate_eviction.simulate.trace import SimulationError
from tidegate_eviction.simulate.zoo import NIGHT_SECONDS, Zoo, generate

STEADY = Zoo(bursty=0, nightly=0, diurnal=0)


@pytest.mark.parametrize("seed", range(3))
def test_requests_come_in_time_order_and_about_as_many_as_wanted(seed: int) -> None:
    trace = generate(Zoo(seed=seed))
    assert list(trace.seconds) == sorted(trace.seconds)
    assert 0 <= trace.seconds[0] <= trace.seconds[-1] < 24 * 3600
    assert 0.5 * 20_000 < len(trace) < 2 * 20_000


def test_use_follows_zipf() -> None:
    trace = generate(replace(STEADY, requests=50_000, zipf=1.0))
    counts = sorted(Counter(trace.which).values(), reverse=True)
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.1)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.2)


def test_more_is_asked_by_day_than_by_night() -> None:
    hours = Counter(int(time // 3600) for time in generate(replace(STEADY, diurnal=0.8)).seconds)
    day, night = sum(hours[hour] for hour in range(11, 17)), sum(hours[hour] for hour in (23, 0, 1, 2, 3, 4))
    assert day > 4 * night


def test_the_nightly_batch_runs_at_night() -> None:
    trace = generate(replace(STEADY, nightly=1, hours=48, requests=2000))
    begins, ends = NIGHT_SECONDS
    assert len(trace) > 1000
    assert all(begins <= time % 86400 <= ends for time in trace.seconds)
    assert {int(time // 86400) for time in trace.seconds} == {0, 1}


def test_bursts_leave_long_pauses() -> None:
    def irregular(zoo: Zoo) -> float:
        """Return the coefficient of variation of the time between requests; 1 is what chance makes."""
        times = generate(zoo).seconds
        gaps = [after - before for before, after in itertools.pairwise(times)]
        mean = math.fsum(gaps) / len(gaps)
        return math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean

    one = replace(STEADY, models=1, requests=1000)
    assert irregular(one) < 1.2
    assert irregular(replace(one, bursty=1)) > 2


def test_footprints_spread_and_loads_take_time_in_proportion() -> None:
    models = generate(replace(STEADY, models=500, requests=5000)).models
    sizes = sorted(model.footprint_bytes for model in models)
    assert sizes[250] == pytest.approx(400e6, rel=0.25)
    assert sizes[-1] > 30 * sizes[0]
    largest = sorted(models, key=lambda model: model.footprint_bytes)
    assert sum(model.load_seconds for model in largest[-100:]) > 4 * sum(model.load_seconds for model in largest[:100])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"models": 0}, "--models 0: "), ({"diurnal": 1.5}, "--diurnal 1.5: "), ({"hours": math.nan}, "--hours nan: "),
     ({"zipf": -1.0}, "--zipf -1"), ({"requests": 0}, "--requests 0"), ({"footprint_mb": math.inf}, "--footprint-mb")],
)  # fmt: skip
def test_a_zoo_that_cannot_be_is_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(SimulationError, match=words):
        generate(replace(Zoo(), **wrong))  # type: ignore[arg-type]
