"""What can be tried, and what makes no sense."""

from pathlib import Path
from typing import Any

import pytest
from tidegate.errors import UsageError
from tidegate.triton.tuning import Plan


def test_every_value_is_tried_with_every_other_but_for_requests_that_are_larger_than_a_batch() -> None:
    plan = Plan(instances=(1, 2), max_batches=(2, 4), batches=(1, 4), concurrencies=(1, 8))
    tried = [(each.instances, each.max_batch, each.batch, each.concurrency) for each in plan.settings()]
    assert tried == [
        (1, 2, 1, 1), (1, 2, 1, 8),
        (1, 4, 1, 1), (1, 4, 1, 8), (1, 4, 4, 1), (1, 4, 4, 8),
        (2, 2, 1, 1), (2, 2, 1, 8),
        (2, 4, 1, 1), (2, 4, 1, 8), (2, 4, 4, 1), (2, 4, 4, 8),
    ]  # fmt: skip
    assert [each.instances for each in Plan(concurrencies=(1,)).settings()] == [None]


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
        Plan(**said)
