"""How much a larger slice helps: the same simulations at many capacities."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..choosing.policy import Policy
from .compare import Row, run
from .setting import Setting
from .trace import Trace

SHARES = tuple(percent / 100 for percent in range(10, 101, 10))
"""Of the footprints of all models together."""


@dataclass(frozen=True, slots=True)
class Point:
    """One capacity."""

    share: float
    capacity_bytes: int
    rows: tuple[Row, ...]


def sweep(trace: Trace, setting: Setting, policies: Sequence[Policy]) -> Iterator[Point]:
    """Yield what each policy does at each capacity, the smallest first."""
    for share in SHARES:
        capacity = max(1, round(share * trace.total_bytes))
        print(f"capacity {share:.0%} …", file=sys.stderr, flush=True)
        each = (replace(setting, policy=policy, capacity_bytes=capacity) for policy in policies)
        yield Point(share, capacity, tuple(run(trace, one) for one in each))
