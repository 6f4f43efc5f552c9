"""Counts what happens, in plain numbers that cost next to nothing; Prometheus reads them when it asks."""

from bisect import bisect_left
from collections import defaultdict

from tidegate_service.histogram import Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the latency histogram's buckets."""


class CallCount:
    """Of one server, model and protocol."""

    __slots__ = ("buckets", "bytes_in", "bytes_out", "seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = defaultdict(int)
        self.buckets = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0
        self.bytes_in = 0
        self.bytes_out = 0

    def ended(self, status: int, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """Count a call that has ended."""
        self.statuses[status] += 1
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.seconds += seconds
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out


class Meter:
    """All counts of a proxy. The number of models bounds the number of label sets."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str, str], CallCount] = defaultdict(CallCount)
        self.problems: dict[str, int] = defaultdict(int)
        self.upstream_errors: dict[tuple[str, str], int] = defaultdict(int)
        self.mirrored: dict[tuple[str, str, str], int] = defaultdict(int)
        """By server, model and what became of the copy."""
        self.lease_acquires: dict[tuple[str, str, str], int] = defaultdict(int)
        """By server, pool and outcome."""
        self.lease_waits: dict[tuple[str, str], Histogram] = defaultdict(lambda: Histogram(SECONDS))
        """Of requests that came without a lease, by server and pool."""
        self.lease_spills: dict[tuple[str, str], int] = defaultdict(int)
        """Requests that went on to another replica, which one had no room for."""

    def count(self, server: str, model: str, protocol: str) -> CallCount:
        """Return where the calls of a model are counted; it stays the same over reloads of the tables."""
        return self.calls[server, model, protocol]
