from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from tidegate_contracts import lease
from tidegate_eviction.core.messages import Load
from tidegate_eviction.policies.registry import find

from .test_core_break_even import BREAKING_EVEN
from .world import World, had, specs, started, unloads

LOAD_SECONDS = 2.0
PERIOD = 60.0


def call(world: World, name: str) -> None:
    """Call a model, load it if necessary, and release the lease immediately."""
    ticket = world.ask("p1", name, None)
    if not isinstance(ticket, lease.Granted):
        for _ in range(3):  # Unloads of others, then its load.
            if not isinstance(world.answers.get(ticket.number), lease.Granted):  # type: ignore[union-attr]
                world.jump(
                    LOAD_SECONDS if any(isinstance(each.command, Load) for each in world.at_work.values()) else 0
                )
                world.finish()
    world.release("p1", name)


def to(world: World, at: float) -> None:
    world.advance(at - world.now)


def with_timer(
    times: int = 6, *, period: float = PERIOD, jitter: float = 0.0, other_loads: float = 1.0,
    policy: str = "break-even", timed: Mapping[str, int] = MappingProxyType({"a": 60}), calls: int = 1,
) -> World:  # fmt: skip
    """A world in which a timer calls `a` at multiples of its period. `b` takes the memory afterwards, and can be
    evicted again at the timer's next call."""
    other = {"b": 60 if len(timed) == 1 else 90}
    rules = replace(BREAKING_EVEN, policy=find(policy), lease_seconds=15.0)
    if not rules.policy.breaks_even:
        rules = replace(rules, idle_seconds=0.0)
    world = started(specs({**timed, **other}), rules)
    for number in range(times):
        for name in timed:
            to(world, max(world.now, number * period + (jitter if number % 2 else 0.0)))
            for _ in range(calls):
                call(world, name)
                world.advance(0.3)
    to(world, world.now + 20.0)
    load_other(world, other_loads)
    return world


def load_other(world: World, seconds: float = 1.0, name: str = "b") -> None:
    world.ask("p2", name, None)
    make_way(world)
    world.jump(seconds)
    world.finish()
    if name in world.proxies["p2"]:
        world.release("p2", name)
    assert world.states[name] == "resident"


def warm(world: World) -> None:
    make_way(world)
    world.jump(LOAD_SECONDS)
    world.finish()


def make_way(world: World) -> None:
    if unloads(world):
        world.finish()


def ahead(world: World) -> list[str]:
    return [each.wanted_by for each in world.evictions if each.reason == "ahead"]


@pytest.mark.parametrize(("period", "calls"), [(PERIOD, 1), (PERIOD, 3), (24 * 60 * PERIOD, 1)])
def test_a_model_that_a_timer_calls_is_there_just_before_the_next_call(period: float, calls: int) -> None:
    world = with_timer(period=period, calls=calls)
    to(world, 6 * period - 1.1 * LOAD_SECONDS - 1.0 - min(0.01 * period, 5.0) - 0.1)
    assert world.states["b"] == "resident"
    assert not ahead(world)
    world.advance(0.2)
    assert unloads(world) == ["b"]
    assert ahead(world) == ["a"]
    warm(world)
    to(world, 6 * period)
    assert isinstance(world.ask("p1", "a", 0.0), lease.Granted), "it is warm for the timer"


def test_it_keeps_its_place_until_it_is_called_and_a_timer_that_has_stopped_is_waited_for_once() -> None:
    world = with_timer(period=10 * PERIOD)
    to(world, 60 * PERIOD - 6.0)
    warm(world)
    late = 2.0 + 0.02 * 10 * PERIOD
    assert world.listed("a").evictable_in == pytest.approx(60 * PERIOD + late - world.now)
    to(world, 60 * PERIOD + late)
    assert world.listed("a").evictable_in == 0.0
    load_other(world)
    to(world, 100 * PERIOD)
    assert ahead(world) == ["a"]


def test_a_loaded_model_is_kept_for_a_foreseen_call() -> None:
    world = with_timer()
    call(world, "a")
    to(world, world.now + PERIOD - 2.0)
    assert world.states["a"] == "resident"
    assert 0.0 < (world.listed("a").evictable_in or 0.0) <= 2.0 + 2.0 + 0.02 * PERIOD


def test_a_called_model_is_kept_no_longer_than_any_other() -> None:
    world = with_timer(period=10 * PERIOD)
    to(world, 60 * PERIOD - 2.0)
    warm(world)
    had(world, "a")
    world.release("p1", "a")
    idle = 4 * world.residency.load_seconds["a"]
    assert world.listed("a").evictable_in == idle
    assert idle < 2.0 + 0.02 * 10 * PERIOD


def used_until_the_call(world: World, model: str = "") -> World:
    """Advance until after the call. Each second the other proxy renews its leases, or calls a model."""
    while world.now < 12 * PERIOD + 3.0:
        if model:
            had(world, model, "p2")
            world.release("p2", model)
        world.advance(1.0)
        world.renew("p2")
    return world


def leased() -> World:
    world = with_timer(period=2 * PERIOD)
    had(world, "b", "p2")
    return used_until_the_call(world)


def just_used() -> World:
    world = with_timer(period=2 * PERIOD)
    to(world, 12 * PERIOD - 5.0)
    return used_until_the_call(world, "b")


def pinned() -> World:
    world = with_timer(period=2 * PERIOD)
    world.change("b", pinned=True)
    return used_until_the_call(world)


def under_another_policy() -> World:
    world = with_timer()
    world.change_rules(policy=find("lru-idle"))
    return world


def beside_a_load_that_is_measured() -> World:
    world = with_timer()
    world.change("c", footprint_bytes=None, estimate_bytes=10)
    to(world, 6 * PERIOD - 5.0)
    world.ask("p1", "c", None)
    (begun,) = world.at_work.values()
    assert begun.alone(world.now)
    return world


def of_a_new_version() -> World:
    world = with_timer()
    world.change_rules(first_load_margin=0.25)
    world.change("a", stamp="new")
    return world


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(lambda: with_timer(7, jitter=25.0), id="calls at random"),
        pytest.param(lambda: with_timer(3), id="too few calls"),
        pytest.param(lambda: with_timer(7, policy="lru-idle"), id="another policy"),
        pytest.param(lambda: with_timer(7, period=29.0), id="too frequent calls"),
        pytest.param(lambda: used_until_the_call(with_timer(period=2 * PERIOD, other_loads=8.0)), id="long loads"),
        leased, just_used, pinned, under_another_policy, beside_a_load_that_is_measured, of_a_new_version,
    ],
)  # fmt: skip
def test_nothing_is_evicted_for_unforeseen_or_costlier_loads(
    world: Callable[[], World],
) -> None:
    made = world()
    to(made, max(made.now, 6 * PERIOD + 1.0) + 4 * PERIOD)
    assert not ahead(made), "the call has come and gone"


def test_a_model_that_may_be_evicted_a_moment_later_is_evicted_then() -> None:
    world = with_timer()
    to(world, 6 * PERIOD - 6.5)
    had(world, "b", "p2")
    world.release("p2", "b")
    to(world, 6 * PERIOD - 2.6)
    assert not ahead(world)
    to(world, 6 * PERIOD - 1.0)
    assert ahead(world) == ["a"]


def test_a_call_in_between_gives_a_new_prediction() -> None:
    world = with_timer()
    to(world, 6 * PERIOD - 30.0)
    call(world, "a")
    world.advance(9.0)
    load_other(world)
    to(world, 6 * PERIOD + 1.0)
    assert world.states["b"] == "resident"
    assert not ahead(world)


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_model_whose_load_outlasts_the_wait_is_predicted_by_its_refused_calls(comes_back: bool) -> None:
    others = [f"b{number}" for number in range(6)]  # Each takes the memory once.
    rules = replace(BREAKING_EVEN, lease_seconds=15.0, wait_seconds=1.0)
    world = started(specs(dict.fromkeys(["a", *others], 60)), rules)
    for number, other in enumerate(others):
        to(world, number * 5 * PERIOD)
        ticket = world.ask("p1", "a", None)
        make_way(world)
        world.advance(1.5)
        assert isinstance(world.answered(ticket), lease.Busy)
        world.jump(LOAD_SECONDS)
        world.finish()
        if comes_back:
            world.advance(3.0)
            call(world, "a")
        to(world, number * 5 * PERIOD + 60.0)
        load_other(world, 0.3, other)
    to(world, 30 * PERIOD - LOAD_SECONDS - 3.0)
    assert ahead(world)[-1:] == ["a"]
    warm(world)
    to(world, 30 * PERIOD)
    assert isinstance(world.ask("p1", "a", 0.0), lease.Granted), "it is warm for the timer"


def test_timers_of_one_moment_are_all_served() -> None:
    world = with_timer(timed={"a": 30, "c": 30})
    for _ in range(12):
        world.advance(0.5)
        if world.now > 6 * PERIOD - 6.0:
            break
    to(world, 6 * PERIOD - 3.5)
    warm(world)
    assert ahead(world) == ["a"], "one eviction makes room for both"
    assert world.states["a"] == world.states["c"] == "resident"


def test_timers_of_one_moment_queue_no_load_without_memory() -> None:
    world = with_timer(timed={"a": 60, "c": 60})
    to(world, 6 * PERIOD - 1.0)  # `c` is called two seconds after `a`, so both loads would have begun.
    assert ahead(world) == ["a"]
    assert [world.states[name] for name in ("a", "c")] == ["queued", "cold"]


def test_nothing_goes_as_long_as_no_load_may_begin() -> None:
    world = with_timer()
    world.change_rules(loads_at_once=1)
    world.change("c", footprint_bytes=10)
    to(world, 6 * PERIOD - 5.0)
    world.ask("p1", "c", None)
    assert world.states["c"] == "loading"
    to(world, 6 * PERIOD - 2.0)
    assert not ahead(world)
    world.finish()
    world.advance(1.0)
    assert ahead(world) == ["a"]


def test_a_load_that_cannot_end_in_time_is_dropped_when_the_call_is_too_late() -> None:
    world = with_timer()
    to(world, 6 * PERIOD + 2.0 + 0.02 * PERIOD - 0.1)
    assert world.states["a"] == "queued", "the room is not free yet"
    world.advance(0.2)
    assert world.states["a"] == "cold"


def test_waiting_callers_come_first() -> None:
    world = with_timer()
    world.change("c", footprint_bytes=60)
    to(world, 6 * PERIOD - 5.0)
    had_before = len(world.loads)
    world.proxies["p3"] = {}
    world.ask("p3", "c", None)
    world.advance(3.0)
    world.finish()
    assert world.loads[had_before:] == ["c"]


@pytest.mark.parametrize(("before_the_call", "goes"), [(0.5, False), (-0.5, True)])
def test_callers_due_before_the_call_get_their_memory(before_the_call: float, goes: bool) -> None:
    world = with_timer()
    world.change("c", footprint_bytes=60)
    pool = world.residency._pool  # As `leases` does for a refused caller.
    other = pool.models["c"]
    other.back_at, other.returns = 6 * PERIOD - before_the_call, [(6 * PERIOD - before_the_call, 7 * PERIOD)]
    pool.returning["c"] = None
    to(world, 6 * PERIOD - 1.6)
    assert ahead(world) == (["a"] if goes else [])


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


def test_a_model_just_loaded_ahead_is_not_evicted_first_despite_a_long_period() -> None:
    world = with_timer(period=30 * PERIOD)
    world.change("d", footprint_bytes=40)
    to(world, 180 * PERIOD - 200.0)
    load_other(world, 1.0, "d")
    to(world, 180 * PERIOD - 8.0)
    warm(world)
    assert world.states["a"] == world.states["d"] == "resident"
    world.change("c", footprint_bytes=40)
    to(world, 180 * PERIOD - 1.0)
    world.ask("p2", "c", None)
    assert world.states["a"] == "resident"
    assert unloads(world) == ["d"]
