"""A lease as a simulated proxy holds it."""

from dataclasses import dataclass
from typing import Protocol

from .setting import FOR_EVER


class Follower(Protocol):
    """Where a lease is held."""

    def follow(self, held: "HeldLease", now: float, again: bool = False) -> bool:
        """Do with a lease what its proxy has done until now; tell whether requests may begin under it."""


@dataclass(slots=True)
class HeldLease:
    """What a proxy knows of a lease that it holds, and tells when it renews it."""

    which: int
    warm_seconds: float
    of: Follower
    renews: float  # When its proxy renews it next, as far as it was followed.
    until: float = 0.0  # When the last request ends.
    requests: int = 0  # Since the last renewal.
    in_flight: int = 0
    idle_seconds: float = 0.0
    lost: bool = False  # No request may begin under it: it is released when the last one has ended.
    looked_at: float = FOR_EVER  # When its proxy finds out that it is unused, unless it is used again.
