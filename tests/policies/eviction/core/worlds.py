"""Worlds that several tests begin with, and short words for what they do there."""

from tidegate_contracts import lease
from tidegate_eviction.core.messages import PoolSettings, Ticket, Unload

from .books import RULES, Begun, specs
from .world import World


def started(*arguments: object, **more: object) -> World:
    world = World(*arguments, **more)  # type: ignore[arg-type]
    world.recover()
    return world


def had(world: World, name: str, holder: str = "p1") -> None:
    answer = world.ask(holder, name, None)
    answer = world.answer(answer) if isinstance(answer, Ticket) else answer
    assert isinstance(answer, lease.Granted), answer


def full(sizes: dict[str, int], rules: PoolSettings = RULES, **more: object) -> World:
    """A world where a, b, … were loaded one after the other as long as there was room, and given back at once."""
    world = started(specs(sizes, **more), rules)
    room = rules.capacity_bytes
    for name, size in sizes.items():
        if size <= room:
            room -= size
            used(world, name)
            world.advance(1.0)
    return world


def used(world: World, name: str) -> None:
    had(world, name)
    world.release("p1", name)


def unloads(world: World) -> list[str]:
    """What Triton unloads, each with the parts that go with it, in order."""
    return [name for each in world.at_work.values() if isinstance(each.command, Unload) for name in each.command.names]


def under_way(world: World) -> Begun:
    (begun,) = world.at_work.values()
    return begun
