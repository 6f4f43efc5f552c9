"""What is simulated."""

from dataclasses import dataclass

from ..choosing.policy import Policy


@dataclass(frozen=True, slots=True)
class Setting:
    """A pool besides the requests to it. Times are seconds."""

    policy: Policy
    capacity_bytes: int
    """Of each replica."""
    idle_seconds: float = 0.0
    wait_seconds: float = 0.0
    """How long a request waits for room before it is told busy. A load that has begun is waited for to its end."""
    replicas: int = 1
    holders: int = 1
    """Proxies, which get requests in turn."""
    lease_seconds: float = 0.0
    """0: proxies give leases back as soon as their last request has ended. Else they renew them, as they really do."""
    unload_seconds: float = 0.0
    freeing_seconds: float = 0.0
    """How long memory takes to come back after an unload."""
    residency_factor: float = 0.0
    """Anti-thrash: a model stays for so many times what it took to load. 0: off."""
    loads_at_once: int = 4
    instant: bool = False
    """Whether loads take no time, as in plain simulations of caches; they are charged all the same."""
