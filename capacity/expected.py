"""What the simulator expects of a pool: the same calls once more, with these settings or others."""

import math
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from tidegate_eviction.core.messages import PoolSettings
from tidegate_eviction.policies import registry
from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.trace import Trace

from stacks import devices
from stacks.definition.models import Model
from stacks.definition.pools import OnDemand, Pool


@dataclass(frozen=True)
class Expected:
    """What came of a simulation. `lost_seconds` are those waited, and a whole wait for each call that was refused."""

    calls: int
    warm: int
    refused: int
    lost_seconds: float

    @property
    def warm_share(self) -> float:
        """Share of calls that found their model resident."""
        return self.warm / self.calls if self.calls else 1.0


def setting_of(pool: Pool, models: Collection[Model]) -> SimulationSetting | None:
    """Return how an on-demand pool is simulated; None where that cannot be: a policy that is not installed here, a
    slice of unknown size."""
    loading, capacity = pool.loading, devices.capacity_bytes(pool)
    if not isinstance(loading, OnDemand) or capacity is None:
        return None
    try:
        policy = registry.find(loading.policy, {name: str(said) for name, said in loading.policy_settings.items()})
    except ValueError:
        return None
    return SimulationSetting(
        policy=policy,
        capacity_bytes=capacity,
        idle_seconds=loading.idle_seconds,
        wait_seconds=loading.wait_seconds,
        replicas=max(1, devices.most_replicas(pool)),
        lease_seconds=loading.lease_seconds,
        residency_factor=PoolSettings.residency_factor,
        pinned=frozenset(model.name for model in models if model.pinned),
    )


def expect(trace: Trace, setting: SimulationSetting, apart: Collection[str] = ()) -> Expected:
    """Return what is to be expected of a pool, with some models in pools of their own, where each has all the room."""
    parts = [(without(trace, apart), setting)]
    for name in apart:
        alone = without(trace, {each.name for each in trace.models} - {name})
        room = sum(each.footprint_bytes for each in alone.models) * 2
        parts.append((alone, replace(setting, capacity_bytes=room, replicas=1, pinned=frozenset())))
    outcomes = [(simulate(part, how), how) for part, how in parts if len(part)]
    return Expected(
        calls=sum(each.requests for each, _ in outcomes),
        warm=sum(each.hits for each, _ in outcomes),
        refused=sum(each.refused for each, _ in outcomes),
        lost_seconds=sum(math.fsum(each.waits) + each.refused * (how.wait_seconds or 0.0) for each, how in outcomes),
    )


def without(trace: Trace, names: Collection[str]) -> Trace:
    """Return a trace without some models and their requests."""
    return only(trace, [model.name for model in trace.models if model.name not in names])


def only(trace: Trace, names: Collection[str]) -> Trace:
    """Return a trace with just these models and their requests."""
    kept = [place for place, model in enumerate(trace.models) if model.name in names]
    if len(kept) == len(trace.models):
        return trace
    places = {old: new for new, old in enumerate(kept)}

    def requests() -> Iterator[tuple[float, int]]:
        return ((seconds, places[which]) for seconds, which in trace.requests() if which in places)

    models = tuple(trace.models[place] for place in kept)
    return Trace(models, array("d", (at for at, _ in requests())), array("l", (which for _, which in requests())))
