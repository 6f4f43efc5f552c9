"""Counts what happens, in plain numbers; Prometheus reads them when it asks."""

from collections import Counter

from tidegate_service.histogram import Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the histograms' buckets."""


class Counts:
    """All counts of a policy; no label is a caller's own word."""

    def __init__(self) -> None:
        self.acquires: Counter[str] = Counter()
        """By outcome: hit (resident), loaded (waited for), and the refusals' own words; gone: hung up while waiting."""
        self.requests = 0
        """Requests that holders say went to resident models."""
        self.waits = Histogram(SECONDS)
        self.loads = Histogram(SECONDS)
        self.load_failures = 0
        self.evictions: Counter[str] = Counter()
        """By reason."""
        self.unload_failures = 0
        self.frees = Histogram(SECONDS)
        self.overruns = 0
        self.recycles = 0
        self.triton_losses = 0
        self.releases = 0
        self.renewals = 0
