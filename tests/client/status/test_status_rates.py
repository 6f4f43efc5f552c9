"""Rates are those of counts that belong together, or there are none."""

from typing import Any

import pytest
from tidegate.cli.status import _cells
from tidegate.status.collect import _version


def counted(requests: int) -> dict[str, Any]:
    return {"inference_stats": {"success": {"count": requests, "ns": requests * 1000}}}


def test_a_rate_is_what_was_counted_meanwhile() -> None:
    assert _version("1", True, counted(10), counted(30), 2.0).per_second == 10


@pytest.mark.parametrize("before", [None, counted(1000)])
def test_counts_of_another_replica_or_load_are_no_rate(before: dict[str, Any] | None) -> None:
    found = _version("1", True, before, counted(30), 2.0)
    assert (found.requests, found.per_second, found.busy) == (30, None, None)
    assert _cells(found, watched=True)[3:5] == ("", "")
