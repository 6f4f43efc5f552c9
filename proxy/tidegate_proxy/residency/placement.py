"""Where a model belongs: pure functions of what every proxy sees, so that proxies agree without talking."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp

from ..upstream.replica import weight

HOT_IN_FLIGHT = 16.0
"""Requests of one model under way on average, at which it gets a second copy: a queue builds up."""
HOT_A_SECOND = 100.0
"""Requests of one model a second at which it gets one."""
CALM = 0.5
"""Below this share of both, the second copy is given up again ..."""
CALM_SECONDS = 60.0
"""... when that lasts so long."""
MEMORY_SECONDS = 5.0
"""Time constant of the averages: a burst that is shorter makes no model hot."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that could be asked for a lease."""

    name: str
    """Host and port, the same at every proxy."""
    stays: bool = True
    """Whether it is listed, and its policy answers and grants leases."""
    warm: bool = False
    """Whether the model is resident there."""


def ranked(model: str, names: Iterable[str]) -> list[str]:
    """Return replicas, the one where the model belongs first: one replica more or less moves one in N of the models."""
    key = model.encode()
    return sorted(names, key=lambda name: weight(name, key), reverse=True)


def order(model: str, candidates: Sequence[Candidate]) -> list[str]:
    """Return replicas in the order in which to ask for a lease: those that stay, where the model is warm, by rank."""
    by_name = {each.name: each for each in candidates}

    def behind(name: str) -> tuple[bool, bool]:
        return not by_name[name].stays, not by_name[name].warm

    return sorted(ranked(model, by_name), key=behind)  # stable: the rank decides among equals


@dataclass(slots=True)
class Heat:
    """The load of one model through this proxy: it is hot from a high load on until a low one has lasted."""

    in_flight: float = 0.0
    a_second: float = 0.0
    hot: bool = False
    calm_seconds: float = 0.0

    def look(self, in_flight: int, requests: int, seconds: float) -> bool:
        """Take in requests in flight now and those begun in the last `seconds`; return whether the model is hot."""
        if seconds <= 0:
            return self.hot
        share = 1 - exp(-seconds / MEMORY_SECONDS)
        self.in_flight += (in_flight - self.in_flight) * share
        self.a_second += (requests / seconds - self.a_second) * share
        load = max(self.in_flight / HOT_IN_FLIGHT, self.a_second / HOT_A_SECOND)
        self.calm_seconds = self.calm_seconds + seconds if load < CALM else 0.0
        if load >= 1:
            self.hot = True
        elif self.calm_seconds >= CALM_SECONDS:
            self.hot = False
        return self.hot
