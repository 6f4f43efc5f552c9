"""What came of a simulation."""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

QUANTILES = 50, 95, 99
Progress = Callable[[int, int], None]
"""Told now and then how much of something long is done, and how much it is."""


@dataclass(slots=True)
class Outcome:
    """Counts over all requests of a trace. Times are seconds."""

    requests: int = 0
    hits: int = 0
    """Requests whose model was resident."""
    busy: int = 0
    """Requests that were told to come again, for want of room."""
    too_large: int = 0
    """Requests for models that no slice of this size holds."""
    evictions: int = 0
    loads: list[tuple[float, float]] = field(default_factory=list)
    """When each load began, and what it took."""
    waits: "array[float]" = field(default_factory=lambda: array("d"))
    """What was added to each answered request, by waiting for room and for its load."""
    starts: "array[float]" = field(default_factory=lambda: array("d"))
    """When each answered request began to be worked on …"""
    positions: "array[int]" = field(default_factory=lambda: array("l"))
    """… and its position in the trace."""

    def started(self, position: int, now: float, wait: float, hit: bool) -> None:
        """Count a request that begins to be worked on."""
        self.hits += hit
        self.waits.append(wait)
        self.starts.append(now)
        self.positions.append(position)

    @property
    def load_seconds(self) -> float:
        """What all loads took together."""
        return math.fsum(seconds for _, seconds in self.loads)

    @property
    def answered(self) -> int:
        """Requests that were worked on."""
        return len(self.waits)

    @property
    def refused(self) -> int:
        """Requests that were refused."""
        return self.busy + self.too_large

    def added_wait(self) -> dict[int, float]:
        """Return the added wait of answered requests at each of `QUANTILES`."""
        ordered = sorted(self.waits)
        return {each: quantile(ordered, each) for each in QUANTILES}

    def figures(self) -> dict[str, float | int]:
        """Return its figures, by name."""
        waits = {f"added_wait_p{each}_seconds": round(wait, 6) for each, wait in self.added_wait().items()}
        return {
            "requests": self.requests,
            "hits": self.hits,
            "cold_loads": len(self.loads),
            "load_seconds": round(self.load_seconds, 3),
            "busy": self.busy,
            "too_large": self.too_large,
            "evictions": self.evictions,
            **waits,
        }


@dataclass(frozen=True, slots=True)
class Bound:
    """The least seconds of loading."""

    seconds: float
    exact: bool
    """Whether it is the optimum itself."""


def quantile(ordered: Sequence[float], percent: float) -> float:
    """Return the percentile of an ordered list, by nearest rank; 0 of an empty one."""
    return ordered[max(1, math.ceil(len(ordered) * percent / 100)) - 1] if ordered else 0.0
