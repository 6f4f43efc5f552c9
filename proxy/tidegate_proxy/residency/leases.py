"""One lease, and how it is used."""

from tidegate_contracts import lease as told

from ..upstream.pool import Replica


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
        """Whether it is had. Void or given up, it stays while requests are under way, of which the policy is told."""
        self.since = 0.0
        """When it was last asked for."""
        self.until = 0.0
        """Until when requests may be begun under it (monotonic seconds)."""
        self.in_flight = 0
        self.requests = 0
        """All so far; so many of them were reported to the policy, and seen by the look for hot models."""
        self.reported = 0
        self.seen = 0
        self.used = 0.0
        """When the last request came or ended."""
        self.doubted = 0.0
        """When Triton last said that it does not know the model."""
        self.serial = 0
        """Of the latest grant, as the policy counts them."""
        self.versions: tuple[int, ...] = ()
        """Those that were loaded when it was granted; none: not known."""

    def enter(self) -> None:
        """Count a request that begins."""
        self.in_flight += 1
        self.requests += 1

    def leave(self, now: float) -> None:
        """Count its end."""
        self.in_flight -= 1
        self.used = now

    def idle_seconds(self, now: float) -> float:
        """Return how long it was not used."""
        return 0.0 if self.in_flight else max(0.0, now - self.used)

    def use(self, now: float) -> told.Use:
        """Return how it is used, for the policy."""
        idle = self.idle_seconds(now)
        return told.Use(in_flight=self.in_flight, idle_seconds=idle, requests=self.requests - self.reported)
