"""One lease, and all leases of this proxy on one model."""

import asyncio

from tidegate_contracts import lease as api

from ..upstream.replica import Replica
from .placement import Heat


class Lease:
    """A model at a replica: one object for as long as anything is known of it, so that requests are counted on it."""

    __slots__ = (
        "doubted", "held", "in_flight", "model", "replica", "reported", "requests", "seen", "serial", "since", "until",
        "used", "versions",
    )  # fmt: skip

    def __init__(self, model: str, replica: Replica) -> None:
        self.model = model
        self.replica = replica
        self.held = False
        """False once it is void or given up; it then stays while requests are in flight, which renewals report."""
        self.since = 0.0
        """When it was last asked for."""
        self.until = 0.0
        """Until when requests may begin under it (monotonic seconds)."""
        self.in_flight = 0
        self.requests = 0
        """All so far."""
        self.reported = 0
        """Of these, how many the policy was told of."""
        self.seen = 0
        """Of these, how many the last look for hot models has counted."""
        self.used = 0.0
        """When the last request began or ended."""
        self.doubted = 0.0
        """When Triton last answered that it does not know the model."""
        self.serial = 0
        """The policy's number of the latest grant."""
        self.versions: tuple[int, ...] = ()
        """The versions that were loaded when it was granted; empty where that is not known."""

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


class ModelLeases:
    """The leases on one model: one, or two while it is hot or moves."""

    __slots__ = ("again", "heat", "leases", "looked", "moving", "sequential")

    def __init__(self, now: float) -> None:
        self.leases: list[Lease] = []
        """Those that are held, the oldest first."""
        self.heat = Heat()
        self.looked = now
        """When its load was last looked at."""
        self.sequential = False
        """Whether requests of sequences came, which must all reach the same replica: such a model has one lease."""
        self.moving: asyncio.Task[None] | None = None
        """Acquires another lease."""
        self.again = 0.0
        """When another lease may be tried for again."""
