"""Loads ahead of calls: of which models, when, and for whose room."""

from dataclasses import replace

import pytest
from tidegate_contracts import lease
from tidegate_eviction.core.messages import Load
from tidegate_eviction.policies.registry import find

from .books import specs
from .test_core_break_even import BREAKING_EVEN
from .world import World
from .worlds import had, started, unloads

LOAD_SECONDS = 2.0
PERIOD = 60.0


def call(world: World, name: str) -> None:
    """Have a model called, loaded if it must be, and given back at once."""
    asked = world.ask("p1", name, None)
    if not isinstance(asked, lease.Granted):
        for _ in range(3):  # unloads of others, its load
            if not isinstance(world.answers.get(asked.number), lease.Granted):  # type: ignore[union-attr]
                world.jump(
                    LOAD_SECONDS if any(isinstance(each.command, Load) for each in world.at_work.values()) else 0
                )
                world.finish()
    world.release("p1", name)


def to(world: World, at: float) -> None:
    world.advance(at - world.now)


def with_timer(
    times: int = 6, *, period: float = PERIOD, jitter: float = 0.0, other_loads: float = 1.0, policy: str = "break-even"
) -> World:
    """A world in which `a` is called by a timer, at multiples of its period; another model takes the room after that,
    and may go again when the timer's next call comes."""
    world = started(specs({"a": 60, "b": 60}), replace(BREAKING_EVEN, policy=find(policy), lease_seconds=15.0))
    for number in range(times):
        to(world, number * period + (jitter if number % 2 else 0.0))
        call(world, "a")
    to(world, world.now + 20.0)
    load_other(world, other_loads)
    return world


def load_other(world: World, seconds: float = 1.0) -> None:
    world.ask("p2", "b", None)
    world.finish()
    world.jump(seconds)
    world.finish()
    if "b" in world.proxies["p2"]:
        world.release("p2", "b")
    assert world.states["b"] == "resident"


def test_a_model_that_a_timer_calls_is_there_just_before_the_next_call() -> None:
    world = with_timer()
    to(world, 6 * PERIOD - 1.1 * LOAD_SECONDS - 1.0 - 0.01 * PERIOD - 0.1)
    assert world.states["b"] == "resident"
    world.advance(0.2)
    assert unloads(world) == ["b"]
    assert world.evictions[-1].reason == "ahead"
    assert world.evictions[-1].wanted_by == "a"
    world.finish()
    world.jump(LOAD_SECONDS)
    world.finish()
    to(world, 6 * PERIOD)
    assert isinstance(world.ask("p1", "a", 0.0), lease.Granted), "it is warm for the timer"


def test_until_it_is_called_it_keeps_its_place_and_not_for_longer_than_the_call_is_late() -> None:
    world = with_timer()
    to(world, 6 * PERIOD - 2.0)
    world.finish()
    world.finish()
    assert world.states["a"] == "resident"
    late = 2.0 + 0.02 * PERIOD
    assert world.listed("a").evictable_in == pytest.approx(max(late + 2.0, 4 * LOAD_SECONDS), abs=4.0)
    to(world, 6 * PERIOD + late + 4 * LOAD_SECONDS)
    assert world.listed("a").evictable_in == 0.0
    loads = world.loads.count("a")
    to(world, 20 * PERIOD)
    assert world.loads.count("a") == loads, "a timer that has stopped is waited for once"


def ahead(world: World) -> list[str]:
    """Which models others went for before they were called."""
    return [each.wanted_by for each in world.evictions if each.reason == "ahead"]


@pytest.mark.parametrize("why", ["random", "too few calls", "another policy", "too frequent"])
def test_what_does_not_come_at_regular_times_is_not_foreseen(why: str) -> None:
    world = with_timer(
        3 if why == "too few calls" else 7, jitter=25.0 if why == "random" else 0.0,
        period=29.0 if why == "too frequent" else PERIOD, policy="lru" if why == "another policy" else "break-even",
    )  # fmt: skip
    world.advance(4 * PERIOD)
    assert not ahead(world)


@pytest.mark.parametrize("why", ["leased", "just used", "dear to load again", "pinned"])
def test_nothing_goes_for_it_that_may_not_or_would_cost_more(why: str) -> None:
    world = with_timer(period=2 * PERIOD, other_loads=8.0 if why == "dear to load again" else 1.0)
    if why == "leased":
        had(world, "b", "p2")
    elif why == "just used":
        to(world, 12 * PERIOD - 5.0)
        had(world, "b", "p2")
        world.release("p2", "b")
    elif why == "pinned":
        world.change("b", pinned=True)
    while world.now < 12 * PERIOD + 3.0:
        world.advance(1.0)
        if why == "leased":
            world.renew("p2")
    assert not ahead(world)


def test_one_that_was_called_in_between_is_foreseen_anew() -> None:
    world = with_timer()
    to(world, 6 * PERIOD - 30.0)
    call(world, "a")
    world.advance(9.0)
    load_other(world)
    to(world, 6 * PERIOD + 1.0)
    assert world.states["b"] == "resident"
    assert not ahead(world)


def test_callers_who_wait_come_first() -> None:
    world = with_timer()
    world.change("c", footprint_bytes=60)
    to(world, 6 * PERIOD - 5.0)
    had_before = len(world.loads)
    world.proxies["p3"] = {}
    world.ask("p3", "c", None)
    world.advance(3.0)
    world.finish()
    assert world.loads[had_before:] == ["c"]


def test_a_model_whose_load_failed_is_left_to_its_callers() -> None:
    world = with_timer()
    to(world, 6 * PERIOD - 2.0)
    world.end_unload(world.working)
    world.read()
    world.end_load(world.working, "no such file")
    world.finish()
    to(world, 6 * PERIOD)
    world.ask("p1", "a", 0.0)
    for _ in range(70):
        world.advance(1.0)
        world.finish()
    assert world.loads.count("a") == 2


def test_what_was_called_is_kept_no_longer_than_any_other() -> None:
    world = with_timer(period=10 * PERIOD)
    to(world, 60 * PERIOD - 2.0)
    for _ in range(2):
        world.finish()
    had(world, "a")
    world.release("p1", "a")
    assert world.listed("a").evictable_in == 4 * world.residency.load_seconds["a"] < 2.0 + 0.02 * 10 * PERIOD
