"""Worlds that several tests begin with, and short words for what they do there."""

from tidegate_contracts import lease
from tidegate_eviction.core.events import Ticket, Unload
from tidegate_eviction.core.rules import PoolRules

from .books import RULES, Begun, specs
from .world import World


def started(*arguments: object, **more: object) -> World:
    """A world whose core has read the index."""
    world = World(*arguments, **more)  # type: ignore[arg-type]
    world.recover()
    return world


def had(world: World, name: str, holder: str = "p1") -> None:
    """Ask for a model until it is granted."""
    answer = world.ask(holder, name, None)
    answer = world.answer(answer) if isinstance(answer, Ticket) else answer
    assert isinstance(answer, lease.Granted), answer


def full(sizes: dict[str, int], rules: PoolRules = RULES, **more: object) -> World:
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
    """Ask for a model until it is granted, and give it back."""
    had(world, name)
    world.release("p1", name)


def unloads(world: World) -> list[str]:
    """Models that Triton unloads."""
    return [each.command.model for each in world.at_work.values() if isinstance(each.command, Unload)]


def under_way(world: World) -> Begun:
    """The one thing that Triton does."""
    (begun,) = world.at_work.values()
    return begun
