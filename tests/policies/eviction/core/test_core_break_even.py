from dataclasses import replace

import pytest
from tidegate_contracts import lease
from tidegate_eviction.policies.registry import find

from .world import RULES, World, had, specs, started, unloads, used

BREAKING_EVEN = replace(RULES, policy=find("break-even"), idle_seconds=300.0, wait_seconds=20.0, residency_factor=0.0)


def holding(sizes: dict[str, int], seconds: float, **more: object) -> World:
    """A world in which the first of two models was loaded in `seconds`, used, and released just now."""
    world = started(specs(sizes, **more), BREAKING_EVEN)
    first = next(iter(sizes))
    world.ask("p1", first, None)
    if seconds >= BREAKING_EVEN.wait_seconds:  # Its caller leaves without a refusal.
        world.take(world.residency.cancel(world.open.popitem()[1], world.now))
    world.jump(seconds)
    world.end_load(world.working)
    if first not in world.proxies["p1"]:
        had(world, first)
    world.release("p1", first)
    return world


@pytest.mark.parametrize(("load", "idle"), [(10.0, 40.0), (200.0, 300.0)])
def test_a_model_may_go_once_it_was_idle_for_four_times_its_load_or_for_its_idle_limit(
    load: float, idle: float
) -> None:
    world = holding({"a": 60, "b": 60}, load)
    world.advance(idle - 0.1)
    assert isinstance(world.ask("p1", "b", 0.0), lease.Busy)
    assert not unloads(world)
    world.advance(0.1)
    world.ask("p1", "b", 0.0)
    assert unloads(world) == ["a"]


def test_a_model_with_a_cheap_load_is_evicted_at_once_for_a_refused_caller() -> None:
    world = holding({"a": 60, "b": 60}, 1.0)
    world.ask("p1", "b", None)
    assert unloads(world) == ["a"], "b's caller loses 18 s of 20 without it, a's one, twice"


@pytest.mark.parametrize("refused", [0, 2, 3])
def test_a_model_with_an_expensive_load_is_evicted_when_refusals_cost_twice_as_much(refused: int) -> None:
    world = holding({"a": 60, "b": 60}, 20.0)
    for _ in range(refused):
        assert isinstance(world.ask("p2", "b", 0.0), lease.Busy)
        world.advance(1.0)
    world.ask("p1", "b", None)
    assert unloads(world) == (["a"] if refused == 3 else []), "20 s each were lost, and a load of a costs 30"


def test_refusals_before_a_model_was_there_count_no_more() -> None:
    world = holding({"a": 60, "b": 60}, 20.0)
    for _ in range(4):
        world.ask("p2", "b", 0.0)
    world.ask("p2", "b", None)
    world.until(lambda: world.states["b"] == "resident")
    world.release("p2", "b")
    world.advance(300.0)
    world.ask("p1", "a", None)
    world.until(lambda: world.states["a"] == "loading")
    world.jump(19.0)
    world.end_load(world.working)
    world.release("p1", "a")
    world.ask("p2", "b", 0.0)
    assert world.states["a"] == "resident", "one caller of b was refused since, and not six"


def test_a_lease_a_separate_idle_time_and_a_pin_protect_a_model_at_any_loss() -> None:
    own = holding({"a": 60, "b": 60}, 1.0, idle_seconds=100.0)
    held = holding({"a": 60, "b": 60}, 1.0)
    had(held, "a")
    pinned = holding({"a": 60, "b": 40}, 1.0)
    pinned.change("a", pinned=True)
    pinned.change("b", footprint_bytes=40)
    for world in (own, held):
        for _ in range(20):
            assert isinstance(world.ask("p2", "b", 0.0), lease.Busy)
        assert not unloads(world)
    had(pinned, "b")
    assert not unloads(pinned)


def test_without_a_wait_there_is_nothing_to_lose_and_only_idle_models_go() -> None:
    world = holding({"a": 60, "b": 60}, 10.0)
    world.change_rules(wait_seconds=0.0)
    for _ in range(20):
        world.ask("p1", "b", 0.0)
    assert not unloads(world)
    world.advance(40.0)
    world.ask("p1", "b", 0.0)
    assert unloads(world) == ["a"]


def test_models_whose_callers_lose_least_are_evicted_before_longer_idle_ones() -> None:
    world = holding({"a": 50, "b": 50, "c": 50}, 70.0)
    world.advance(290.0)
    had(world, "b")
    world.release("p1", "b")
    world.ask("p1", "c", None)
    assert unloads(world) == ["b"], "a was idle for four of its loads, but is expensive to load again"


@pytest.mark.parametrize(("late", "goes"), [(-0.1, False), (0.0, True), (3.0, True), (9.1, False)])
def test_a_caller_that_returns_on_time_gets_memory_of_any_unleased_model(late: float, goes: bool) -> None:
    """A caller can return up to a tenth of the wait and three seconds late. Then even expensive models are evicted."""
    world = holding({"a": 60, "b": 60}, 200.0)
    back = world.busy("p2", "b", 0.0)
    assert back == 60.0
    world.advance(50.0)
    used(world, "a")
    world.advance(10.0 + late)
    world.ask("p2", "b", None)
    assert unloads(world) == (["a"] if goes else [])


def test_leased_models_stay_and_the_returned_caller_gets_a_new_retry_after() -> None:
    world = holding({"a": 60, "b": 60}, 200.0)
    world.advance(world.busy("p2", "b", 0.0))
    had(world, "a")
    assert world.busy("p2", "b", 0.0)
    assert not unloads(world)


@pytest.mark.parametrize("load", [30.0, 170.0])
def test_a_caller_refused_during_a_known_load_finds_the_model_on_its_return(load: float) -> None:
    """The load is longer than the wait, and another model's callers want its memory."""
    world = started(specs({"a": 60, "b": 60}, load_seconds=load), BREAKING_EVEN)
    ticket = world.ask("p1", "a", None)
    world.advance(20.0)
    busy = world.answered(ticket)
    assert isinstance(busy, lease.Busy)
    assert busy.retry_after == load - 20.0
    world.advance(load - 20.0)
    world.end_load(world.working)
    for _ in range(6):
        world.ask("p2", "b", 0.0)
    world.advance(3.0)
    assert isinstance(world.ask("p1", "a", 0.0), lease.Granted)
    world.end_of_requests(0.1 * load)
    assert not world.listed("a").leases, "once its caller is no longer due"


def test_a_copy_into_the_tier_counts_in_the_cost_of_an_eviction_but_not_in_the_estimated_end() -> None:
    world = started(specs({"a": 60, "b": 60}), BREAKING_EVEN)
    world.take(world.residency.cancel(world.ask("p1", "a", None), world.now))  # type: ignore[arg-type]
    world.open.clear()
    world.jump(65.0)
    world.end_load(world.working, copied_seconds=60.0)
    used(world, "a")
    world.advance(100.0)
    assert isinstance(world.ask("p1", "b", 0.0), lease.Busy), "four times the load alone have passed, not the copy's"
    world.advance(200.0)
    used(world, "b")
    world.advance(300.0)
    world.ask("p1", "a", None)
    world.end_unload(world.working)
    world.read()
    world.advance(2.0)
    assert world.busy("p2", "a", 0.0) == pytest.approx(3.0)
