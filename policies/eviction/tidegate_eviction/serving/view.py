"""What people and Prometheus are shown: one look at a policy, taken on its own thread."""

from dataclasses import dataclass

from tidegate_contracts import lease

from ..triton.memory import Reading
from .counts import Counts


@dataclass(frozen=True, slots=True)
class View:
    """A policy as it is at one instant."""

    listing: lease.Listing
    counts: Counts
    reading: Reading
    triton_is_up: bool
    leases: int
    settings_generation: int
    settings_failures: int
    settings_error: str
    """Why the settings file as it lies there is not in use; empty while it is."""
