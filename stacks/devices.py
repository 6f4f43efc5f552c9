"""Placements in numbers: the devices, their number, memory and price."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tidegate_contracts.eviction import MODELS_SHARE

from .definition.base import byte_count
from .definition.gpu_products import gpu_bytes, gpu_product, slice_bytes
from .definition.mig_cuts import part_of_gpu
from .definition.money import CURRENCY, Cost, Hourly, cost, price_of
from .definition.placement import (
    CpuPlacement,
    DraPlacement,
    GpuNodes,
    MigPlacement,
    Placement,
    SharedGpuPlacement,
    WholeGpuPlacement,
)
from .definition.pools import POOL_REPLICAS, OnDemand, Pool
from .definition.servers import Server
from .stack import Stack


@dataclass(frozen=True)
class Device:
    """A kind of device that a node gives and a pod requests."""

    kind: str  # `mig`, `gpu`, `time-slicing`, `mps` or `dra`.
    profile: str | None = None
    strategy: str | None = None

    def __str__(self) -> str:
        if self.kind == "mig":
            return f"MIG {self.profile} ({self.strategy})"
        names = {"gpu": "whole GPU", "time-slicing": "time-sliced GPU", "mps": "MPS share of a GPU"}
        return names.get(self.kind, f"device by DRA ({self.profile})")

    @property
    def price_key(self) -> str:
        """Return its key in a table of prices: the profile, or the kind."""
        return self.profile or self.kind


@dataclass(frozen=True)
class Taken:
    """The devices that a pool takes, with an autoscaler at its maximum."""

    pool: str  # `server/pool`.
    device: Device
    count: int
    price: float | None  # Of one device an hour.
    currency: str

    @property
    def cost(self) -> Cost:
        return cost(self.count, self.price, self.currency, self.device.price_key)


def taken(stack: Stack) -> list[Taken]:
    """Return the devices that each pool of a stack takes, with their prices in the data plane's inventory."""
    known, unit, found = prices(stack.data_plane.gpus), currency(stack.data_plane.gpus), []
    for _, server, pool in stack.pools():
        if kind := device(pool.placement):
            price = price_of(known, kind.price_key, getattr(pool.placement, "product", None) or "")
            count = most_replicas(pool) * devices_per_replica(pool.placement)
            found.append(Taken(f"{server.name}/{pool.name}", kind, count, price, unit))
    return found


def summary(pools: Iterable[Taken]) -> str:
    """Return devices and their cost, as `2 × MIG 1g.10gb (mixed), $1,068 a month`. Empty without devices."""
    found = list(pools)
    counts = sum((Counter({str(each.device): each.count}) for each in found), Counter[str]())
    there = [f"{count} × {name}" for name, count in sorted(counts.items())]
    return ", ".join([*there, f"{sum((each.cost for each in found), Cost())} a month"]) if there else ""


def bill(stacks: Iterable[Stack]) -> list[str]:
    """Return a line with the devices of each stack that takes any, and their cost. The last one has all of them."""
    found = {stack.name: taken(stack) for stack in stacks}
    lines = [f"{name}: {text}" for name, pools in found.items() if (text := summary(pools))]
    return [*lines, f"all stacks: {summary(chain(*found.values()))}"] if len(lines) > 1 else lines


def device(placement: Placement) -> Device | None:
    """Return the kind of device that a replica needs, or None on CPU."""
    match placement:
        case CpuPlacement():
            return None
        case MigPlacement(profile=profile, strategy=strategy):
            return Device("mig", profile, strategy)
        case DraPlacement(profile=str() as profile):
            return Device("dra", profile)
        case DraPlacement():
            return Device("gpu")  # The same GPU as without DRA.
        case WholeGpuPlacement() | SharedGpuPlacement():
            return Device(placement.kind)


def devices_per_replica(placement: Placement) -> int:
    """Return the number of devices of one replica."""
    if isinstance(placement, WholeGpuPlacement):
        return placement.count
    return 0 if isinstance(placement, CpuPlacement) else 1


def most_replicas(pool: Pool) -> int:
    """Return the number of replicas, or the autoscaler's maximum."""
    if pool.autoscaling is not None:
        return pool.autoscaling.max
    return POOL_REPLICAS if pool.replicas is None else pool.replicas


def inventory(groups: Iterable[GpuNodes]) -> Counter[tuple[Device, str]]:
    """Count the devices of a data plane by kind and product."""
    found: Counter[tuple[Device, str]] = Counter()
    for group in groups:
        for kind, _, count in _devices(group):
            found[kind, group.product] += group.nodes * count
    return found


def _devices(group: GpuNodes) -> Iterator[tuple[Device, float | None, int]]:
    """Yield the devices of a node: the kind, its part of a GPU (None if not known), and their number."""
    product = gpu_product(group.product)
    for gpus, layout in group.layouts:
        for profile, count in layout.slices.items():
            dra = layout.strategy == "dra"
            kind = Device("dra", profile) if dra else Device("mig", profile, layout.strategy)
            yield kind, part_of_gpu(product, profile, layout.slices) if product else None, gpus * count
    if group.sharing is not None:
        yield Device(group.sharing.kind), 1 / group.sharing.replicas, group.per_node * group.sharing.replicas
    elif group.whole:
        yield Device("gpu"), 1.0, group.whole


def prices(groups: Iterable[GpuNodes]) -> Hourly:
    """Return the highest price of a device of each product an hour. Without any price, the result is empty."""
    nodes = list(groups)
    found: dict[str, dict[str, float | None]] = {}
    for group in nodes if any(group.price for group in nodes) else ():
        for kind, part, _ in _devices(group):
            device, before = kind.price_key, found.setdefault(group.product, {})
            price = round(group.price.per_hour * part, 6) if group.price and part is not None else None
            known = [one for one in (before.get(device, price), price) if one is not None]
            before[device] = max(known) if len(known) == 2 else None
    return found


def currency(groups: Iterable[GpuNodes]) -> str:
    """Return the currency of an inventory's prices."""
    return next((group.price.currency for group in groups if group.price), CURRENCY)


def memory_bytes(pool: Pool, gpus: Sequence[GpuNodes] = ()) -> int | None:
    """Return the bytes of memory for models of one replica, or None if they are not known.

    The product determines the memory of a slice or GPU. A pool without a product can get any of `gpus` with its slices,
    of which at least one must be a known product. Without a GPU, it is the container's memory without /dev/shm. The
    size of a share of a GPU is not known.
    """
    match pool.placement:
        case MigPlacement(profile=profile, product=label) | DraPlacement(profile=str() as profile, product=label):
            made = {product for kind, product in inventory(gpus) if kind == device(pool.placement)}
            is_unknown = label is None and made and not any(map(gpu_product, made))
            return None if is_unknown else slice_bytes(profile, label)
        case WholeGpuPlacement(product=label, count=count):
            memory = gpu_bytes(label)
            return memory * count if memory else None
        case DraPlacement(product=label):
            return gpu_bytes(label)
        case CpuPlacement():
            return byte_count(pool.resources.memory) - byte_count(pool.shared_memory)
        case _:
            return None


def capacity_bytes(pool: Pool, gpus: Sequence[GpuNodes] = ()) -> int | None:
    """Return the bytes that models of an on-demand pool may take on one replica, or None if they are not known."""
    if not isinstance(pool.loading, OnDemand):
        return None
    if pool.loading.capacity is not None:
        return byte_count(pool.loading.capacity)
    memory = memory_bytes(pool, gpus)
    part, whole = MODELS_SHARE
    return None if memory is None else memory * part // whole


def promised_bytes(stack: Stack, server: Server, pool: Pool) -> int:
    """Return the capacity of one replica, or else the sum of its models' footprints, in bytes."""
    capacity = capacity_bytes(pool)
    if capacity is not None:
        return capacity
    return sum(byte_count(model.footprint) for model in stack.models_of(server, pool) if model.footprint)


def gb(count: int) -> str:
    """Return bytes as text, in decimal gigabytes."""
    return f"{count / 10**9:.1f} GB"
