"""How much is done for the live figures: what good figures need, or just enough to see that they can be had."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Effort:
    """How long, how often, how many."""

    runs: int
    """Turns that each side has."""
    seconds: float
    """How long a turn is."""
    cold_models: int
    callers: int
    """Of a stampede."""
    stampedes: int
    room: int
    """Models that there is room for when it is tried how many more can be served."""
    density_seconds: float
    densities: tuple[int, ...]
    """So many times more models are tried, one after the other until one is served well enough."""


FULL: Final = Effort(5, 2.0, 8, 200, 2, 8, 50.0, (20, 8))
QUICK: Final = Effort(1, 1.0, 1, 20, 1, 3, 4.0, (2,))
