from dataclasses import replace

import pytest
from tidegate_contracts import lease
from tidegate_eviction.core.messages import Load, LoadFailed, ModelSpec, ServerInventory, Ticket
from tidegate_eviction.core.residency import Residency

from .world import BASE, RULES, World, specs, started


def running(sizes: dict[str, int]) -> World:
    world = started(specs(sizes))
    for name in sizes:
        world.ask("p1", name, None)
    world.until(lambda: not world.open)
    return world


def test_after_a_restart_every_resident_model_counts_as_leased_for_a_whole_period() -> None:
    world = running({"a": 60})
    world.specs["b"] = ModelSpec("b", footprint_bytes=60, pinned=True)
    world.restart_policy()
    assert world.states == {"a": "resident", "b": "queued"}
    world.advance(RULES.lease_seconds - 0.1)
    assert world.evictions == [], "b is pinned and takes its room, but not from who may be in use"
    world.proxies["p1"].clear()
    world.advance(0.1)
    assert [evicted.model for evicted in world.evictions] == ["a"]


def test_a_load_that_is_under_way_at_a_restart_is_watched_and_not_issued_again() -> None:
    world = started(specs({"a": 60}))
    world.ask("p1", "a", None)
    world.restart_policy()
    (begun,) = world.at_work.values()
    assert isinstance(begun.command, Load)
    assert begun.command.watch
    ticket = world.ask("p1", "a", None)
    assert isinstance(world.answer(ticket), lease.Granted)


def test_an_unload_under_way_at_a_restart_is_watched_and_its_memory_still_counts() -> None:
    world = running({"a": 60})
    world.change("b", footprint_bytes=60)
    world.end_of_requests()
    world.advance(RULES.idle_seconds)
    world.ask("p1", "b", None)
    world.restart_policy()
    assert world.states == {"a": "unloading", "b": "cold"}
    assert world.charged() == 60
    ticket = world.ask("p1", "b", None)
    assert isinstance(ticket, Ticket)
    world.until(lambda: not world.open)
    assert world.states == {"a": "cold", "b": "resident"}


def test_unknown_models_are_unloaded_after_the_period() -> None:
    world = World(specs({"a": 60}))
    world.loaded = {"stranger": 5}
    world.recover()
    assert world.states["stranger"] == "draining"
    world.advance(RULES.lease_seconds)
    assert world.states["stranger"] == "unloading"
    world.finish()
    world.advance(RULES.freeing_seconds)
    world.finish()
    assert world.states == {"a": "cold"}


def test_durations_of_loads_are_known_from_now_and_from_before_the_start() -> None:
    world = started({"a": ModelSpec("a", 10), "b": ModelSpec("b", 10, load_seconds=7.0), "c": ModelSpec("c", 10)})
    assert world.residency.load_seconds == {"b": 7.0}
    world.ask("p1", "a", None)
    world.advance(3.0)
    world.end_load(world.working)
    assert world.residency.load_seconds == {"a": 3.0, "b": 7.0}


@pytest.mark.parametrize(("loaded", "state"), [((1, 2), "draining"), ((3, 2), "resident")])
def test_a_model_with_other_versions_than_in_the_settings_is_loaded_again(loaded: tuple[int, ...], state: str) -> None:
    residency = Residency(RULES, "new")
    residency.configure(RULES, {"a": ModelSpec("a", footprint_bytes=10, versions=(2, 3))}, 0.0)
    residency.recover(ServerInventory(resident=("a",), versions={"a": loaded}), 0.0)
    assert residency.listing(0.0).models[0].state == state


def test_a_model_that_brings_triton_down_each_time_is_quarantined() -> None:
    world = started(specs({"a": 40, "b": 40}))
    for n in range(RULES.failures_most):
        world.ask("p1", "a", None)
        assert [begun.command.model for begun in world.at_work.values()] == ["a"]
        world.lose_triton()
        world.triton_back()
        world.advance(RULES.failure_backoff_seconds * 2**n)
    assert world.states["a"] == "quarantined"
    assert isinstance(world.ask("p1", "b", None), Ticket), "the others are served"


def test_of_several_suspects_each_is_loaded_alone_next_time() -> None:
    world = started(specs({"a": 40, "b": 40}))
    world.ask("p1", "a", None)
    world.ask("p1", "b", None)
    assert len(world.at_work) == 2
    world.lose_triton()
    world.triton_back()
    assert [begun.command.model for begun in world.at_work.values()] == ["a"]
    step = world.residency.server_lost(world.now)
    assert [event.model for event in step.events if isinstance(event, LoadFailed)] == ["a"], "now it is clear who"


def test_after_sigterm_nothing_new_begins_and_renewals_go_on() -> None:
    world = running({"a": 40})
    world.change("b", footprint_bytes=40)
    waits = world.ask("p2", "b", None)
    world.leave()
    assert isinstance(world.answered(waits), lease.Busy)
    assert isinstance(world.ask("p2", "a", None), lease.Busy)
    for _ in range(10):
        world.advance(5.0)
        renewed = world.renew("p1")
        assert (renewed.lost, renewed.accepts, renewed.resident) == ((), False, ())
    assert world.residency.in_flight == 1
    world.end_of_requests()
    assert world.residency.in_flight == 0
    world.advance(1000.0)
    assert world.evictions == []


def test_after_sigterm_an_ended_lease_is_not_granted_again() -> None:
    world = running({"a": 40})
    world.proxies["p1"]["a"].in_flight = 0
    world.leave()
    world.advance(RULES.lease_seconds)
    assert world.renew("p1").lost == ("a",)
    assert world.residency.leases == 0


def test_a_part_that_is_being_unloaded_below_its_ensemble_is_left_to_the_ensemble() -> None:
    residency = Residency(RULES, "new")
    models = {"pair": ModelSpec("pair", footprint_bytes=10, parts=("part",)), "part": ModelSpec("part", 20)}
    residency.configure(RULES, models, 0.0)
    step = residency.recover(ServerInventory(resident=("pair",), unloading=("part",)), 0.0)
    assert step.commands == []
    assert residency.listing(0.0).resident_bytes == 30


@pytest.mark.parametrize("back", [0.0, -5.0, -1e9])
def test_a_clock_that_stands_still_or_goes_back_moves_nothing(back: float) -> None:
    world = running({"a": 40})
    listing = world.residency.listing(world.now)
    for _ in range(3):
        assert world.take(world.residency.tick(world.now + back)).events == []
    assert world.residency.listing(world.now) == listing


def test_a_clock_that_jumps_ahead_ends_leases_and_waits_and_nothing_else() -> None:
    world = running({"a": 60})
    world.change("b", footprint_bytes=60)
    ticket = world.ask("p2", "b", None)
    assert isinstance(ticket, lease.Busy)
    world.jump(1e6)
    assert world.residency.leases == 0
    assert world.states == {"a": "resident", "b": "cold"}
    assert isinstance(world.ask("p2", "b", None), Ticket)


def test_a_model_that_vanished_is_loaded_again_and_nothing_counts_as_leaked() -> None:
    world = running({"a": 40})
    world.read()
    world.residency.memory(BASE, world.now)
    del world.loaded["a"]
    for leases in world.proxies.values():
        leases.pop("a", None)
    world.take(world.residency.vanished(("a", "missing"), world.now))
    assert world.states == {"a": "unloading"}
    world.until(lambda: world.states["a"] == "cold")
    assert world.charged() == 0
    ticket = world.ask("p1", "a", None)
    assert isinstance(world.answer(ticket), lease.Granted)
    assert world.residency.listing(world.now).leaked_bytes == 0


@pytest.mark.parametrize("comes_back", [True, False])
def test_memory_being_freed_when_a_connection_breaks_is_awaited(*, comes_back: bool) -> None:
    world = running({"a": 60})
    world.read()
    world.change("b", footprint_bytes=60)
    world.end_of_requests()
    world.advance(RULES.idle_seconds)
    world.ask("p1", "b", None)
    world.end_unload(world.working, lingers=True)
    assert world.states["a"] == "freeing"
    world.take(world.residency.server_lost(world.now))
    world.take(world.residency.recover(replace(world.index(), same=True), world.now))
    world.read()
    assert world.states["a"] == "unloading"
    assert world.charged() == 60
    world.end_unload(world.working)
    world.read()
    assert (world.states["a"], world.charged()) == ("freeing", 60)
    if comes_back:
        world.lingering = 0
        world.read()
        assert world.residency.listing(world.now).leaked_bytes == 0
    else:
        world.advance(RULES.freeing_seconds)
        world.read()
        assert world.residency.listing(world.now).leaked_bytes == 60
