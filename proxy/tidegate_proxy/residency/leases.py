"""The leases of this proxy in one pool, by replica and by model."""

import asyncio
from dataclasses import dataclass, field
from math import exp

from tidegate_contracts import lease as api

from ..settings import Tunables
from ..upstream.replica import Replica

HOT_IN_FLIGHT = 16.0  # Average requests in flight at which a model gets a second copy: a queue builds up.
HOT_A_SECOND = 100.0  # Requests a second at which a model gets a second copy.
CALM = 0.5  # Below this share of both, the model loses the second copy after a while.


@dataclass(slots=True)
class Heat:
    """Moving averages of one model's load, which decide whether it gets a second replica."""

    tunables: Tunables
    in_flight: float = 0.0
    a_second: float = 0.0
    hot: bool = False
    calm_seconds: float = 0.0

    def look(self, in_flight: int, requests: int, seconds: float) -> bool:
        """Add the requests in flight now and those begun in the last `seconds`. Return whether the model is hot."""
        if seconds <= 0:
            return self.hot
        share = 1 - exp(-seconds / self.tunables.heat_seconds)
        self.in_flight += (in_flight - self.in_flight) * share
        self.a_second += (requests / seconds - self.a_second) * share
        load = max(self.in_flight / HOT_IN_FLIGHT, self.a_second / HOT_A_SECOND)
        self.calm_seconds = self.calm_seconds + seconds if load < CALM else 0.0
        if load >= 1:
            self.hot = True
        elif self.calm_seconds >= self.tunables.calm_seconds:
            self.hot = False
        return self.hot


@dataclass(slots=True, eq=False)
class Lease:
    """This proxy's lease on one model at one replica, and its requests."""

    model: str
    replica: Replica
    held: bool = False
    """False once it is void or given up. It then stays while requests are in flight, which renewals report."""
    since: float = 0.0  # Time of the last request for it.
    until: float = 0.0  # Until when requests can begin under it (monotonic seconds).
    in_flight: int = 0
    requests: int = 0  # All so far.
    reported: int = 0  # Those already reported to the policy.
    seen: int = 0  # Those already counted by the last look for hot models.
    used: float = 0.0  # When the last request began or ended.
    doubted: float = 0.0  # When its server last answered that it does not know the model.
    serial: int = 0  # The policy's number of the latest grant.
    versions: tuple[int, ...] = ()  # The versions loaded when it was granted. Empty if unknown.

    def enter(self) -> None:
        self.in_flight += 1
        self.requests += 1

    def leave(self, now: float) -> None:
        self.in_flight -= 1
        self.used = now

    def usable(self, now: float) -> bool:
        """Return whether a request can begin under it, at a replica that takes requests."""
        return now < self.until and self.replica.breaker.allows(now)

    def idle_seconds(self, now: float) -> float:
        """Return the seconds since it was used. 0 while requests are in flight."""
        return 0.0 if self.in_flight else max(0.0, now - self.used)

    def use(self, now: float) -> api.Use:
        """Return its use as the policy gets it."""
        idle = self.idle_seconds(now)
        return api.Use(in_flight=self.in_flight, idle_seconds=idle, requests=self.requests - self.reported)


@dataclass(slots=True, eq=False)
class ModelLeases:
    """The leases on one model: one, or two while it is hot or moves."""

    checked: float  # Time of the last look at its load.
    heat: Heat
    leases: list[Lease] = field(default_factory=list)  # Held leases, the oldest first.
    sequential: bool = False
    """Whether it gets requests of sequences. These must reach one replica, so the model has one lease."""
    moving: asyncio.Task[None] | None = None  # Acquires another lease.
    again: float = 0.0  # Time of the next attempt to get another lease.
