"""What a definition has today for the models of a trace: pools, what they cost, and what their callers meet."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from tidegate_eviction.simulate.trace import Trace

from stacks import devices
from stacks.command import chosen_stacks
from stacks.definition.base import byte_count
from stacks.definition.gpu_products import gpu_product
from stacks.definition.mig_cuts import part_of_gpu
from stacks.definition.placement import CpuPlacement, WholeGpuPlacement
from stacks.definition.pools import OnDemand, Pool
from stacks.definition.servers import Server
from stacks.stack import Definition, Stack

from .simulations import Figures, SimulatedPool


@dataclass(frozen=True)
class Today:
    """A stack, as far as it concerns the models of a trace."""

    stack: Stack
    gpus: dict[str, Fraction] | None
    """GPUs that its pools take, by the product's label; None where a pool has a share of a GPU, or any product."""
    pools: tuple[SimulatedPool, ...]
    always_warm: frozenset[str]  # Models of preload pools.
    strangers: frozenset[str]
    """Models of the trace that it does not name: taken for those of its first on-demand pool."""

    def __str__(self) -> str:
        """Its name, as what there is today."""
        return f"today: {self.stack.name}"


def stack_of(definition: Definition, name: str | None, trace: Trace) -> Stack | None:
    """Return the stack of that name; without one that which names most models of a trace, of production first.

    None where the definition has no stack; CommandError for a name that there is not.
    """
    if name is not None:
        return chosen_stacks(definition, name)[0]
    models = {model.name for model in trace.models}

    def rank(stack: Stack) -> tuple[int, bool]:
        return len(models & {model.name for model in stack.platform.models}), stack.environment.production

    return max(definition.stacks, key=rank, default=None)


def footprints(stack: Stack) -> dict[str, int]:
    """Return the footprints that a stack declares, in bytes."""
    return {model.name: byte_count(model.footprint) for model in stack.platform.models if model.footprint}


def today(stack: Stack, trace: Trace) -> Today | None:
    """Return what a stack has for a trace; None where it has no on-demand pool for models that it does not name."""
    named = {model.name for model in stack.platform.models}
    strangers = frozenset(model.name for model in trace.models) - named
    pools: list[SimulatedPool] = []
    warm: frozenset[str] = frozenset()
    gpus: dict[str, Fraction] | None = {}
    first = True
    for server, pool, models, pinned in _pools(stack):
        mine = models & {model.name for model in trace.models}
        if isinstance(pool.loading, OnDemand):
            mine, first = mine | (strangers if first else frozenset()), False
            room = devices.capacity_bytes(pool)
            assert room is not None, f"{server.name}/{pool.name}: a rule of the definition asks for it"
            pools += [SimulatedPool(pool.loading, room, max(1, devices.most_replicas(pool)), mine, pinned & mine)]
        else:
            warm |= mine
        if mine and gpus is not None:
            share = _share(pool)
            gpus = None if share is None else _plus(gpus, *share)
    if first and strangers:
        return None
    return Today(stack, gpus, tuple(pool for pool in pools if pool.models), warm, strangers)


def always_warm(trace: Trace, models: frozenset[str]) -> Figures:
    """Return what callers of models meet that are in memory all the time."""
    count = sum(trace.models[which].name in models for which in trace.which)
    return Figures(requests=count, warm=count, answered=count)


def _pools(stack: Stack) -> Iterator[tuple[Server, Pool, frozenset[str], frozenset[str]]]:
    """Yield every pool with its server, its models, and those of them that are pinned."""
    for _, server, pool in stack.pools():
        models = stack.models_of(server, pool)
        pinned = frozenset(model.name for model in models if model.pinned)
        yield server, pool, frozenset(model.name for model in models), pinned


def _share(pool: Pool) -> tuple[str, Fraction] | None:
    """Return the product and the GPUs that a pool takes with all its replicas; None where that is not known."""
    count, label = devices.most_replicas(pool), getattr(pool.placement, "product", None)
    if isinstance(pool.placement, CpuPlacement):
        return "", Fraction(0)
    if label is None:
        return None
    profile = getattr(pool.placement, "profile", None)
    if isinstance(pool.placement, WholeGpuPlacement) or (profile is None and pool.placement.kind == "dra"):
        return label, Fraction(count * devices.devices_per_replica(pool.placement))
    product = gpu_product(label)
    if product is None or profile is None or profile not in product.profiles:
        return None
    return label, Fraction(part_of_gpu(product, profile)).limit_denominator(math.prod(product.slices)) * count


def _plus(gpus: dict[str, Fraction], label: str, share: Fraction) -> dict[str, Fraction]:
    return {**gpus, label: gpus.get(label, Fraction()) + share} if share else gpus
