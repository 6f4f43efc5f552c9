"""What is simulated, and what the core is told of it."""

from dataclasses import dataclass

from ..core.messages import ModelSpec, PoolSettings
from ..policies.policy import Policy
from .trace import Trace, with_true_costs

SHORT_SECONDS = 1.0  # What leases last that are given back after the last request, and renewed until then.
FOR_EVER = 1e12  # Longer than any trace, in seconds.


@dataclass(frozen=True, slots=True)
class SimulationSetting:
    """What is simulated, beside the requests: docs/simulator.md has it by the names of options. Times are seconds."""

    policy: Policy
    capacity_bytes: int
    idle_seconds: float = 0.0
    wait_seconds: float | None = None
    """The pool's bound on waits, for room and load together. None: as in plain simulations of caches, no request waits
    for room, every one waits for its load, and all loads run at once."""
    replicas: int = 1
    holders: int = 1  # Proxies, which get requests in turn.
    lease_seconds: float = 0.0
    unload_seconds: float = 0.0
    freeing_seconds: float = 0.0
    residency_factor: float = 0.0
    loads_at_once: int = PoolSettings.loads_at_once
    instant: bool = False
    tier_bytes: int = 0  # Files that are kept near each replica; 0: none are.
    tier_speedup: float = 1.0  # How many times faster a load is whose files are near.
    pinned: frozenset[str] = frozenset()  # Models that are loaded at the start, on each replica, and never evicted.

    @property
    def is_plain(self) -> bool:
        """Whether it is a cache that is simulated, as others simulate them, and not a pool."""
        return self.instant or self.wait_seconds is None


def pool_settings(trace: Trace, setting: SimulationSetting) -> PoolSettings:
    """Return how each replica's pool is run."""
    plain = setting.is_plain
    return PoolSettings(
        capacity_bytes=setting.capacity_bytes,
        policy=with_true_costs(setting.policy, trace) if setting.instant else setting.policy,
        idle_seconds=setting.idle_seconds,
        lease_seconds=setting.lease_seconds or (FOR_EVER if plain else SHORT_SECONDS),
        wait_seconds=FOR_EVER if setting.wait_seconds is None else setting.wait_seconds,
        loads_at_once=len(trace.models) if plain else setting.loads_at_once,
        measures=setting.freeing_seconds > 0 or not plain, tolerance_bytes=0, freeing_seconds=FOR_EVER,
        residency_factor=setting.residency_factor,
    )  # fmt: skip


def specs(trace: Trace, setting: SimulationSetting) -> dict[str, ModelSpec]:
    """Return what a pool knows of each model. What a trace says of footprints is true: measured before, or, where a
    pool begins, with the first load."""
    return {
        model.name: ModelSpec(
            model.name,
            footprint_bytes=None if setting.is_plain else model.footprint_bytes,
            estimate_bytes=model.footprint_bytes if setting.is_plain else None,
            estimate_from="measured" if setting.is_plain else "unknown",
            pinned=model.name in setting.pinned,
        )
        for model in trace.models
    }
