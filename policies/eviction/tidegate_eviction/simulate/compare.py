"""Policies side by side: over one trace, or over many capacities."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..policies.policy import Policy
from .engine import SimulationSetting, simulate
from .trace import Outcome, Trace

SHARES: Final = tuple(percent / 100 for percent in range(10, 101, 10))


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The outcome of each policy, by its name, at one capacity."""

    share: float
    capacity_bytes: int
    outcomes: Mapping[str, Outcome]


def compare(trace: Trace, setting: SimulationSetting, policies: Sequence[Policy]) -> dict[str, Outcome]:
    """Return the outcome of each policy, by its name."""
    return {policy.name: simulate(trace, replace(setting, policy=policy)) for policy in policies}


def sweep(trace: Trace, setting: SimulationSetting, policies: Sequence[Policy]) -> Iterator[SweepPoint]:
    """Yield the outcomes at each capacity, the smallest first."""
    for share in SHARES:
        capacity = max(1, round(share * trace.total_bytes))
        print(f"capacity {share:.0%} …", file=sys.stderr, flush=True)
        yield SweepPoint(share, capacity, compare(trace, replace(setting, capacity_bytes=capacity), policies))
