"""What a stack costs beside one endpoint a model, and the room that its pools have left; by its definition."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidegate_contracts.eviction import MODELS_SHARE

from policies.guardrails.money import HOURS_A_MONTH, Cost, cost, money, price_of
from stacks import devices
from stacks.definition.base import byte_count
from stacks.definition.gpu_products import gpu_product
from stacks.definition.mig_cuts import part_of_gpu
from stacks.definition.pools import OnDemand, Pool
from stacks.definition.servers import Server
from stacks.devices import Device, gb
from stacks.problems import count_of
from stacks.stack import Definition, Stack


@dataclass(frozen=True)
class PoolRoom:
    """What a pool takes and what it has left, autoscalers at their most."""

    pool: str
    """As `server/pool`."""
    devices: int
    device: str
    """Kind of its devices; empty on processors."""
    free: int | None
    """Devices of this kind that no environment of the data plane asks for; null without an inventory."""
    memory: int | None
    """Bytes of its memory for models; null where it is not known."""
    left: int | None
    """What its models leave of it by their footprints; less than 0 where they take turns."""
    unknown: int
    """How many of its models have no footprint in the definition, and are not counted."""
    first: bool = False
    """Whether the memory is that of the first replica, since it has none while nobody calls it."""

    def __str__(self) -> str:
        """In a line."""
        parts = [f"{self.devices} × {self.device}" if self.device else "no GPU"]
        if self.device and self.free is not None:
            parts.append(f"{self.free} more free on the data plane")
        if self.memory is not None and self.left is not None:
            turns = f"its models want {gb(-self.left)} more than the {gb(self.memory)} for them, and take turns"
            free = turns if self.left < 0 else f"{gb(self.left)} of {gb(self.memory)} for models free"
            parts.append(f"none while nobody calls it, then {free}" if self.first else free)
        if self.unknown:
            parts.append(f"{count_of(self.unknown, 'model')} without a footprint not counted")
        return f"{self.pool}: {'; '.join(parts)}"


@dataclass(frozen=True)
class Room:
    """What one endpoint a model would take, and what the pools of a stack have left."""

    models: int
    endpoints: Cost
    """Of one device for each model, the cheapest that holds it of those that the data plane's GPUs can be cut into; the
    devices of a replica where it has a pool alone."""
    pools: tuple[PoolRoom, ...]


def room_of(stack: Stack, definition: Definition) -> Room:
    """Return the room of a stack."""
    gpus = stack.data_plane.gpus
    there: Counter[Device] = Counter()
    for (device, _), count in devices.inventory(gpus).items():
        there[device] += count
    for other in definition.stacks:
        if other.data_plane.name == stack.data_plane.name:
            for _, _, pool in other.pools():
                if asked := devices.device(pool.placement):
                    there[asked] -= devices.most_replicas(pool) * devices.devices_per_replica(pool.placement)
    pools = tuple(_pool_room(stack, server, pool, there if gpus else None) for _, server, pool in stack.pools())
    return Room(len(stack.platform.models), sum(_endpoints(stack), Cost()), pools)


def _pool_room(stack: Stack, server: Server, pool: Pool, free: Counter[Device] | None) -> PoolRoom:
    device = devices.device(pool.placement)
    models = stack.models_of(server, pool)
    known = [byte_count(model.footprint) for model in models if model.footprint]
    memory = devices.capacity_bytes(pool) if isinstance(pool.loading, OnDemand) else devices.memory_bytes(pool)
    first = pool.autoscaling is not None and pool.autoscaling.min == 0
    if memory is not None and isinstance(pool.loading, OnDemand):  # its models are shared among the replicas
        memory *= max(1, pool.autoscaling.min) if pool.autoscaling else devices.most_replicas(pool)
    return PoolRoom(
        f"{server.name}/{pool.name}",
        devices.most_replicas(pool) * devices.devices_per_replica(pool.placement),
        str(device or ""),
        None if free is None or device is None else free[device],
        memory,
        None if memory is None else memory - sum(known),
        len(models) - len(known),
        first,
    )


def _endpoints(stack: Stack) -> Iterator[Cost]:
    """Yield the cost of an endpoint for each model, with as many replicas as the model has now.

    Where a pool has one model alone, an endpoint is a replica of it. Of others it is the cheapest device that holds the
    model, any where its footprint is not known. Replicas that load on demand share their models among them.
    """
    copies = {
        model.name: -(-devices.most_replicas(pool) // (len(models) if isinstance(pool.loading, OnDemand) else 1)) or 1
        for _, server, pool in reversed([*stack.pools()])
        for models in [stack.models_of(server, pool)]
        for model in models
    }
    alone = {
        model.name: pool.placement
        for _, server, pool in reversed([*stack.pools()])
        if not server.loads_whole_repository and not isinstance(pool.loading, OnDemand)
        for model in stack.models_of(server, pool)
    }
    gpus = stack.data_plane.gpus
    for model in stack.platform.models:
        if placement := alone.get(model.name):
            kind, product = devices.device(placement), getattr(placement, "product", None) or ""
            price = price_of(devices.prices(gpus), kind.profile or kind.kind, product) if kind else None
            count = copies.get(model.name, 1) * devices.devices_per_replica(placement)
            yield cost(count, price, devices.currency(gpus))
        else:
            yield _endpoint(stack, byte_count(model.footprint) if model.footprint else 0, copies.get(model.name, 1))


def _endpoint(stack: Stack, footprint: int, copies: int) -> Cost:
    """Return the cost of devices for so many replicas of one model alone."""
    gpus = stack.data_plane.gpus
    part, whole = MODELS_SHARE
    found: list[float] = []
    for group in gpus:
        if (product := gpu_product(group.product)) is None:
            continue
        sizes = [(product.slice_bytes(each), part_of_gpu(product, each)) for each in product.plain]
        fitting = [share for size, share in [*sizes, (product.bytes, 1.0)] if size * part // whole >= footprint]
        if group.price and fitting:
            found.append(group.price.per_hour * min(fitting))
    return cost(copies, min(found, default=None), devices.currency(gpus))


def saving(now: Cost, room: Room) -> str:
    """Return what one endpoint a model would cost instead, in a sentence without a subject.

    None without models; nor where a price is missing, for an hour of a slice is not worth one of a whole GPU.
    """
    if not room.models or room.endpoints.month is None or now.month is None:
        return ""
    instead = f"one endpoint for each of {count_of(room.models, 'model')}: {room.endpoints}"
    if not room.endpoints.month:
        return instead
    part = 1 - now.month / room.endpoints.month
    return f"{instead}, {part:.0%} saved" if part >= 0 else f"{instead}; the slices cost {-part:.0%} more"


def difference(before: Cost, after: Cost) -> str:
    """Return how much more or less a month is: money, or device hours where a price is missing.

    An hour of a small slice is not one of a large slice: where several kinds change, each is counted by itself.
    """
    if before.month is None or after.month is None:
        was, will = Counter(dict(before.kinds)), Counter(dict(after.kinds))
        changed = {kind: will[kind] - was[kind] for kind in sorted({*was, *will}) if will[kind] != was[kind]}
        if len(changed) > 1:
            return ", ".join(f"{count * HOURS_A_MONTH:+,} device hours of {kind}" for kind, count in changed.items())
        return f"{(after.devices - before.devices) * HOURS_A_MONTH:+,} device hours"
    return money(after.month - before.month, after.currency, signed=True)


def lines(stacks: Iterable[tuple[str, str, Cost, Room | None]]) -> list[str]:
    """Return what stacks cost and the room that they have left, for people; what is alike is said once.

    Of each stack its name, words about its cost, the cost, and its room where it is described.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for name, words, now, room in stacks:
        beside = saving(now, room) if room else ""
        body = (words + (f"; {beside}" if beside else ""), *map(str, room.pools if room else ()))
        found.setdefault(body, []).append(name)
    return [
        line
        for (head, *pools), names in found.items()
        for line in (f"  {', '.join(names)}: {head}", *(f"    {each}" for each in pools))
    ]
