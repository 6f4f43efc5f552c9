"""Seconds, counted in plain numbers; Prometheus reads them when it asks."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of seconds, below each of `bounds` (which rise), and their sum."""

    __slots__ = ("_bounds", "buckets", "seconds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(self._bounds, seconds)] += 1
        self.seconds += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus has them: each bound, with how many were at most so long."""
        total, found = 0, []
        for bound, number in zip([*map(str, self._bounds), "+Inf"], self.buckets, strict=True):
            total += number
            found.append((bound, float(total)))
        return found
