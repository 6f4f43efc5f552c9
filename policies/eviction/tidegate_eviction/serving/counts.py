"""Counts what happens, in plain numbers; Prometheus reads them when it asks."""

from bisect import bisect_left
from collections import Counter

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the histograms' buckets."""


class Histogram:
    """Counts of seconds, below each bound, and their sum."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.seconds += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus has them: each bound, with how many were at most so long."""
        total, found = 0, []
        for bound, number in zip([*map(str, SECONDS), "+Inf"], self.buckets, strict=True):
            total += number
            found.append((bound, float(total)))
        return found


class Counts:
    """All counts of a policy; no label is a caller's own word."""

    def __init__(self) -> None:
        self.acquires: Counter[str] = Counter()
        """By outcome: hit (resident), loaded (waited for), and the refusals' own words; gone: hung up while waiting."""
        self.requests = 0
        """Requests that holders say went to resident models."""
        self.waits = Histogram()
        self.loads = Histogram()
        self.load_failures = 0
        self.evictions: Counter[str] = Counter()
        """By reason."""
        self.unload_failures = 0
        self.frees = Histogram()
        self.overruns = 0
        self.recycles = 0
        self.triton_losses = 0
        self.releases = 0
        self.renewals = 0
