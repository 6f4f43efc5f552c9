"""What a placement means in numbers: which device, how many, with how much memory."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate_contracts.eviction import MODELS_SHARE

from policies.guardrails.money import CURRENCY, Hourly

from .definition.base import byte_count
from .definition.gpu_products import gpu_product, profile_bytes
from .definition.mig_cuts import part_of_gpu
from .definition.placement import (
    CpuPlacement,
    DraPlacement,
    GpuNodes,
    MigPlacement,
    Placement,
    SharedGpuPlacement,
    WholeGpuPlacement,
)
from .definition.pools import OnDemand, Pool
from .definition.servers import Server
from .stack import Stack


@dataclass(frozen=True)
class Device:
    """A kind of device that a node gives and a pod asks for."""

    kind: str  # `mig`, `gpu`, `time-slicing`, `mps` or `dra`.
    profile: str | None = None
    strategy: str | None = None

    def __str__(self) -> str:
        """Words for people."""
        if self.kind == "mig":
            return f"MIG {self.profile} ({self.strategy})"
        names = {"gpu": "whole GPU", "time-slicing": "time-sliced GPU", "mps": "MPS share of a GPU"}
        return names.get(self.kind, f"device by DRA ({self.profile})")


def device(placement: Placement) -> Device | None:
    """Return the kind of device that a replica needs; None on CPU."""
    match placement:
        case CpuPlacement():
            return None
        case MigPlacement(profile=profile, strategy=strategy):
            return Device("mig", profile, strategy)
        case DraPlacement(profile=str() as profile):
            return Device("dra", profile)
        case DraPlacement():
            return Device("gpu")  # by another way of asking; it is the same GPU
        case WholeGpuPlacement() | SharedGpuPlacement():
            return Device(placement.kind)


def devices_per_replica(placement: Placement) -> int:
    """Return how many devices one replica takes."""
    if isinstance(placement, WholeGpuPlacement):
        return placement.count
    return 0 if isinstance(placement, CpuPlacement) else 1


def most_replicas(pool: Pool) -> int:
    """Return the number of replicas, or the most that an autoscaler may choose."""
    if pool.autoscaling is not None:
        return pool.autoscaling.max
    return 1 if pool.replicas is None else pool.replicas


def asked(pools: Iterable[Pool]) -> Counter[tuple[Device, str | None]]:
    """Count the devices that pools take, autoscalers at their most, by kind and product; None: of any product."""
    found: Counter[tuple[Device, str | None]] = Counter()
    for pool in pools:
        if (kind := device(pool.placement)) is not None:
            product = getattr(pool.placement, "product", None)
            found[kind, product] += most_replicas(pool) * devices_per_replica(pool.placement)
    return found


def inventory(groups: Iterable[GpuNodes]) -> Counter[tuple[Device, str]]:
    """Count the devices of a data plane by kind and product."""
    found: Counter[tuple[Device, str]] = Counter()
    for group in groups:
        gpus = group.nodes * group.per_node
        if group.mig is not None:
            for profile, count in group.mig.slices.items():
                dra = group.mig.strategy == "dra"
                kind = Device("dra", profile) if dra else Device("mig", profile, group.mig.strategy)
                found[kind, group.product] += gpus * count
        elif group.sharing is not None:
            found[Device(group.sharing.kind), group.product] += gpus * group.sharing.replicas
        else:
            found[Device("gpu"), group.product] += gpus
    return found


def prices(groups: Iterable[GpuNodes]) -> Hourly:
    """Return what a device of each product costs an hour, the dearest of several; nothing where no price is said."""
    said = list(groups)
    found: dict[str, dict[str, float | None]] = {}
    for group in said if any(group.price for group in said) else ():
        for kind, _ in inventory([group]):
            device, before = kind.profile or kind.kind, found.setdefault(group.product, {})
            price = None
            if group.price is not None:
                part = part_of_gpu(gpu_product(group.product), kind.profile) if kind.profile else 1.0
                price = round(group.price.per_hour * part / (group.sharing.replicas if group.sharing else 1), 6)
            known = [one for one in (before.get(device, price), price) if one is not None]
            before[device] = max(known) if len(known) == 2 else None
    return found


def currency(groups: Iterable[GpuNodes]) -> str:
    """Return the currency of an inventory's prices."""
    return next((group.price.currency for group in groups if group.price), CURRENCY)


def memory_bytes(pool: Pool) -> int | None:
    """Return the memory that models of one replica can have, in bytes; None where it does not follow.

    A slice's is the number in its profile; a whole GPU's its product's; without a GPU it is the container's memory
    without what /dev/shm may take. A share of a GPU has no size of its own.
    """
    match pool.placement:
        case MigPlacement(profile=profile) | DraPlacement(profile=str() as profile):
            return profile_bytes(profile)
        case WholeGpuPlacement(product=str() as label, count=count):
            product = gpu_product(label)
            return product.memory_gb * 10**9 * count if product else None
        case CpuPlacement():
            return byte_count(pool.resources.memory) - byte_count(pool.shared_memory)
        case _:
            return None


def capacity_bytes(pool: Pool) -> int | None:
    """Return the bytes that an on-demand pool's models may take on one replica; None where it is not known."""
    if not isinstance(pool.loading, OnDemand):
        return None
    if pool.loading.capacity is not None:
        return byte_count(pool.loading.capacity)
    memory = memory_bytes(pool)
    part, whole = MODELS_SHARE
    return None if memory is None else memory * part // whole


def promised_bytes(stack: Stack, server: Server, pool: Pool) -> int:
    """Return what models may take, or take by their footprints, on one replica; 0 where nothing is said of it."""
    capacity = capacity_bytes(pool)
    if capacity is not None:
        return capacity
    return sum(byte_count(model.footprint) for model in stack.models_of(server, pool) if model.footprint)


def gb(count: int) -> str:
    """Return bytes for people, in decimal gigabytes."""
    return f"{count / 10**9:.1f} GB"
