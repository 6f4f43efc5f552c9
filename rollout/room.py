"""The room that the pools of a stack have left, by its definition, and how costs are said."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from policies.guardrails.money import HOURS_A_MONTH, Cost, money
from stacks import devices
from stacks.definition.base import byte_count
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


def room_of(stack: Stack, definition: Definition) -> tuple[PoolRoom, ...]:
    """Return the room of each pool of a stack."""
    gpus = stack.data_plane.gpus
    there: Counter[Device] = Counter()
    for (device, _), count in devices.inventory(gpus).items():
        there[device] += count
    for other in definition.stacks:
        if other.data_plane.name == stack.data_plane.name:
            for _, _, pool in other.pools():
                if asked := devices.device(pool.placement):
                    there[asked] -= devices.most_replicas(pool) * devices.devices_per_replica(pool.placement)
    return tuple(_pool_room(stack, server, pool, there if gpus else None) for _, server, pool in stack.pools())


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


def lines(stacks: Iterable[tuple[str, str, Sequence[PoolRoom]]]) -> list[str]:
    """Return what stacks cost and the room that they have left, for people; what is alike is said once.

    Of each stack its name, words about its cost, and the room of its pools where it is described.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for name, words, pools in stacks:
        found.setdefault((words, *map(str, pools)), []).append(name)
    return [
        line
        for (head, *pools), names in found.items()
        for line in (f"  {', '.join(names)}: {head}", *(f"    {each}" for each in pools))
    ]
