"""What is measured of the eviction policy, what good figures are, and how much is done for the live ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lab.bench.report import Goal

GOALS: Final[Mapping[str, Goal]] = {
    "warm_vs_preloaded": Goal("requests/s of a leased model, against the same one preloaded", "≥ 0.97", "1"),
    "cold_vs_triton": Goal("first answer of a cold model, against bare load and infer", "≤ 1.15", "1.05"),
    "lost_vs_simple_25": Goal("seconds that callers lose, the default against simple rules, 25 %", "≤ 1", "0.5"),
    "lost_vs_simple_40": Goal("the same, room for 40 %", "≤ 1", "0.5"),
    "lost_vs_simple_60": Goal("the same, room for 60 %", "≤ 1", "0.5"),
    "lost_vs_simple_days": Goal("the same on made-up days of five kinds, geometric mean", "≤ 1", "0.5"),
    "lost_vs_simple_worst": Goal("the worst of their cells", "", "≤ 1"),
}  # fmt: skip
"""The keys of the last line, in its order."""


@dataclass(frozen=True)
class Effort:
    """How long, how often, how many."""

    runs: int  # Turns that each side has.
    seconds: float  # How long a turn is.
    cold_models: int


FULL: Final = Effort(5, 2.0, 8)
QUICK: Final = Effort(1, 1.0, 1)
