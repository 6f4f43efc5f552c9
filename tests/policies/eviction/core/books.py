"""What the simulated world begins with, and what it keeps books of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidegate_contracts.lease import State
from tidegate_eviction.core.messages import Load, ModelSpec, PoolSettings, Unload
from tidegate_eviction.core.states import AFTER
from tidegate_eviction.policies.registry import find

BASE = 1000
RULES = PoolSettings(
    capacity_bytes=100, policy=find("lru-idle"), loads_at_once=2, tolerance_bytes=0, leak_budget_bytes=30,
    first_load_margin=0.0,
    idle_seconds=30.0, lease_seconds=16.0, wait_seconds=8.0, freeing_seconds=4.0,
    failure_backoff_seconds=4.0, overdue_seconds=4.0, default_load_seconds=2.0,
)  # fmt: skip
REACHABLE = {(before, after) for (before, _), after in AFTER.items()}
for _ in State:  # several transitions may follow each other within one step
    REACHABLE |= {(a, d) for a, b in REACHABLE for c, d in REACHABLE if b is c}


@dataclass
class Held:
    """What a proxy believes: from when it asked on, by its own counting."""

    until: float
    incarnation: str
    open: bool = True  # New requests may begin under it.
    in_flight: int = 0
    last_use: float = 0.0


@dataclass
class Begun:
    """A command that Triton works at."""

    command: Load | Unload
    pieces: tuple[str, ...]
    since: float = 0.0

    def alone(self, now: float) -> bool:
        """Nothing may begin beside it."""
        return isinstance(self.command, Load) and self.command.alone and now < self.since + RULES.alone_seconds


def specs(sizes: Mapping[str, int], **more: object) -> dict[str, ModelSpec]:
    """Models with declared sizes."""
    return {name: replace(ModelSpec(name, footprint_bytes=size), **more) for name, size in sizes.items()}  # type: ignore[arg-type]
