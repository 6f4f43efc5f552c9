"""What can be tried, what makes no sense, and which of several measurements is the best."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.triton.tuning.plan import ALIKE, Measurement, Setting, SweepPlan, best_of, is_within


def test_every_value_is_tried_with_every_other_but_for_requests_that_are_larger_than_a_batch() -> None:
    plan = SweepPlan(instances=(1, 2), max_batches=(2, 4), batches=(1, 4), concurrencies=(1, 8))
    tried = [(each.instances, each.max_batch, each.batch, each.concurrency) for each in plan.settings()]
    assert tried == [
        (1, 2, 1, 1), (1, 2, 1, 8),
        (1, 4, 1, 1), (1, 4, 1, 8), (1, 4, 4, 1), (1, 4, 4, 8),
        (2, 2, 1, 1), (2, 2, 1, 8),
        (2, 4, 1, 1), (2, 4, 1, 8), (2, 4, 4, 1), (2, 4, 4, 8),
    ]  # fmt: skip
    assert [each.instances for each in SweepPlan(concurrencies=(1,)).settings()] == [None]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"batches": (0,)}, "--batch 0 is not within 1–1024"),
        ({"concurrencies": (1, 2000)}, "--concurrency 2000 is not within"),
        ({"instances": (-1,)}, "--instances -1 is not within"),
        ({"max_batches": (4, 4)}, "--max-batch names a number twice"),
        ({"concurrencies": ()}, "there is nothing to try"),
        ({"window_seconds": 0.0}, "--window 0 is not within"),
        ({"window_seconds": float("nan")}, "--window nan is not within"),
        ({"latency_limit_seconds": 0.0}, "--latency-ms must be more than 0"),
        ({"latency_limit_seconds": float("nan")}, "--latency-ms must be more than 0"),
        ({"shapes": {"IN": ()}}, "--shape takes dimensions from 1 on"),
        ({"shapes": {"IN": (3, -1)}}, "--shape takes dimensions from 1 on"),
        ({"input_data": Path("/no/such/data.json")}, "there is no such file or folder"),
        ({"max_batches": (2,), "batches": (4,)}, "no --max-batch takes requests of 4 rows"),
        ({"batches": tuple(range(1, 200)), "instances": (1, 2, 3)}, "would take hours"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        SweepPlan(**said)


def found(
    rate: float, p99: float = 0.1, instances: int | None = 1, concurrency: int = 1, stable: bool = True
) -> Measurement:
    setting = Setting(instances=instances, batch=1, concurrency=concurrency)
    return Measurement(
        setting=setting, inferences_per_second=rate, p50_seconds=p99 / 4, p90_seconds=p99 / 3, p95_seconds=p99 / 2,
        p99_seconds=p99, stable=stable,
    )  # fmt: skip


measurements = st.lists(
    st.builds(
        found,
        st.floats(0.1, 1e6),
        st.floats(0.0001, 10),
        st.sampled_from([None, 1, 2, 4]),
        st.integers(1, 64),
        st.booleans(),
    ),
    max_size=12,
)
limits = st.none() | st.floats(0.0001, 10)


@given(measurements, limits, st.sampled_from([50, 90, 95, 99]))
def test_the_best_is_about_the_fastest_within_the_limit(
    tried: list[Measurement], limit: float | None, percentile: int
) -> None:
    best = best_of(tried, limit, percentile)  # type: ignore[arg-type]
    fitting = [each for each in tried if is_within(each, limit, percentile)]  # type: ignore[arg-type]
    if best is None:
        assert fitting == []
        return
    assert best in fitting
    rivals = [each for each in fitting if each.stable] or fitting
    assert best in rivals
    assert all(best.inferences_per_second >= each.inferences_per_second * (1 - ALIKE) for each in rivals)


def test_the_best_asks_least_of_the_server_keeps_to_the_percentile_and_does_not_waver() -> None:
    few, many = found(100, instances=1), found(104, instances=4)
    assert best_of([few, many], None, 99) == few
    assert best_of([few, found(120, instances=4)], None, 99) == found(120, instances=4)
    slow_tail = found(100, p99=0.4)
    assert best_of([slow_tail], 0.15, 50) == slow_tail
    assert best_of([slow_tail], 0.15, 95) is None
    wavering = found(500, stable=False)
    assert best_of([wavering, found(100)], None, 99) == found(100)
    assert best_of([wavering, found(100, p99=2)], 1, 99) == wavering
