"""What the simulator expects of a pool: the same calls once more, with these settings or others."""

from collections.abc import Collection

from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.trace import Trace

from stacks import devices
from stacks.definition.models import Model
from stacks.definition.pools import OnDemand, Pool

from .simulations import Figures, figures, setting_of


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


def expect(trace: Trace, setting: SimulationSetting) -> Figures:
    """Return what is to be expected of a pool."""
    return figures(trace, setting.wait_seconds, simulate(trace, setting)) if len(trace) else Figures()
