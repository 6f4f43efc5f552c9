"""What the simulator expects of a pool: the same calls once more, with these settings or others."""

from collections.abc import Collection
from dataclasses import replace

from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.trace import Trace

from stacks import devices
from stacks.definition.models import Model
from stacks.definition.pools import OnDemand, Pool

from .simulations import Figures, figures, only, setting_of


def setting_of_pool(pool: Pool, models: Collection[Model]) -> SimulationSetting | None:
    """Return how an on-demand pool is simulated; None where that cannot be: a policy that is not installed here, a
    slice of unknown size."""
    loading, capacity = pool.loading, devices.capacity_bytes(pool)
    if not isinstance(loading, OnDemand) or capacity is None:
        return None
    pinned = frozenset(model.name for model in models if model.pinned)
    try:
        return setting_of(loading, capacity, max(1, devices.most_replicas(pool)), pinned)
    except ValueError:
        return None


def expect(trace: Trace, setting: SimulationSetting, apart: Collection[str] = ()) -> Figures:
    """Return what is to be expected of a pool, with some models in pools of their own, where each has all the room."""
    parts = [(without(trace, apart), setting)]
    for name in apart:
        alone = without(trace, {each.name for each in trace.models} - {name})
        room = sum(each.footprint_bytes for each in alone.models) * 2
        parts.append((alone, replace(setting, capacity_bytes=room, replicas=1, pinned=frozenset())))
    return sum((figures(part, how.wait_seconds, simulate(part, how)) for part, how in parts if len(part)), Figures())


def without(trace: Trace, names: Collection[str]) -> Trace:
    """Return a trace without some models and their requests."""
    return only(trace, [model.name for model in trace.models if model.name not in names])
