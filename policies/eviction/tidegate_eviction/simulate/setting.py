"""What is simulated, and what the core is told of it."""

from dataclasses import dataclass

from ..core.messages import ModelSpec, PoolSettings
from ..policies.policy import Policy
from .trace import Trace

FOR_EVER = 1e12  # Longer than any trace, in seconds.


@dataclass(frozen=True)
class SimulationSetting:
    """How a pool is run. docs/simulator.md has the options with these names. Times are seconds."""

    policy: Policy
    capacity_bytes: int  # Of each replica.
    idle_seconds: float = 0.0
    wait_seconds: float = 20.0  # How long a request waits for room and load together.
    lease_seconds: float = 15.0
    replicas: int = 1
    holders: int = 1  # Proxies, which get requests in turn.
    tier_bytes: int = 0  # Files that are kept near each replica; 0: none are.
    tier_speedup: float = 1.0  # How many times faster a load is whose files are near.
    pinned: frozenset[str] = frozenset()  # Models that are loaded at the start, on each replica, and never evicted.


def pool_settings(setting: SimulationSetting) -> PoolSettings:
    """Return the core's settings for each replica."""
    return PoolSettings(
        setting.capacity_bytes, setting.policy, setting.idle_seconds, setting.lease_seconds, setting.wait_seconds,
        tolerance_bytes=0, freeing_seconds=FOR_EVER,
    )  # fmt: skip


def specs(trace: Trace, setting: SimulationSetting) -> dict[str, ModelSpec]:
    """Return what a pool knows of each model. The trace's footprints are true, and measured with the first load."""
    return {
        model.name: ModelSpec(model.name, footprint_bytes=model.footprint_bytes, pinned=model.name in setting.pinned)
        for model in trace.models
    }
