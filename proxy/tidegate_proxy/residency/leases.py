"""The leases of this proxy in one pool: where a model belongs, and what is held, by replica and by model."""

import asyncio
from dataclasses import dataclass, field
from math import exp

from tidegate_contracts import lease as api

from ..upstream.replica import Replica

HOT_IN_FLIGHT = 16.0  # Requests of one model under way on average, at which it gets a second copy: a queue builds up.
HOT_A_SECOND = 100.0  # Requests of one model a second at which it gets one.
CALM = 0.5  # Below this share of both, the second copy is given up again ...
CALM_SECONDS = 60.0  # ... when that lasts so long.
MEMORY_SECONDS = 5.0  # Time constant of the averages: a burst that is shorter makes no model hot.


@dataclass(slots=True)
class Heat:
    """Moving averages of one model's load; says whether it deserves a second replica."""

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


@dataclass(slots=True, eq=False)
class Lease:
    """This proxy's lease on one model at one replica, and the requests counted under it."""

    model: str
    replica: Replica
    held: bool = False
    """False once it is void or given up; it then stays while requests are in flight, which renewals report."""
    since: float = 0.0  # When it was last asked for.
    until: float = 0.0  # Until when requests may begin under it (monotonic seconds).
    in_flight: int = 0
    requests: int = 0  # All so far.
    reported: int = 0  # Of these, how many the policy was told of.
    seen: int = 0  # Of these, how many the last look for hot models has counted.
    used: float = 0.0  # When the last request began or ended.
    doubted: float = 0.0  # When its server last answered that it does not know the model.
    serial: int = 0  # The policy's number of the latest grant.
    versions: tuple[int, ...] = ()  # The versions that were loaded when it was granted; empty where that is not known.

    def enter(self) -> None:
        """Count a request that begins."""
        self.in_flight += 1
        self.requests += 1

    def leave(self, now: float) -> None:
        """Count the end of a request."""
        self.in_flight -= 1
        self.used = now

    def usable(self, now: float) -> bool:
        """Tell whether a request may begin under it, at a replica that takes requests."""
        return now < self.until and self.replica.breaker.allows(now)

    def idle_seconds(self, now: float) -> float:
        """Return the seconds since it was used; 0 while requests are in flight."""
        return 0.0 if self.in_flight else max(0.0, now - self.used)

    def use(self, now: float) -> api.Use:
        """Return what the policy is told of its use."""
        idle = self.idle_seconds(now)
        return api.Use(in_flight=self.in_flight, idle_seconds=idle, requests=self.requests - self.reported)


@dataclass(slots=True, eq=False)
class ModelLeases:
    """The leases on one model: one, or two while it is hot or moves."""

    looked: float  # When its load was last looked at.
    leases: list[Lease] = field(default_factory=list)  # Those that are held, the oldest first.
    heat: Heat = field(default_factory=Heat)
    sequential: bool = False
    """Whether requests of sequences came, which must all reach the same replica: such a model has one lease."""
    moving: asyncio.Task[None] | None = None  # Acquires another lease.
    again: float = 0.0  # When another lease may be tried for again.
