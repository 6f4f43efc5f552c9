from dataclasses import replace

import pytest
from tidegate_contracts import lease
from tidegate_eviction.core.messages import Allowed, Load, LoadFailed, Quarantined

from .world import RULES, World, full, had, specs, started, unloads, used

ENSEMBLES = {**specs({"pair": 10, "trio": 10, "alone": 40}), **specs({"part": 30, "more": 10}, callable=False)}
ENSEMBLES["pair"] = replace(ENSEMBLES["pair"], parts=("part",))
ENSEMBLES["trio"] = replace(ENSEMBLES["trio"], parts=("part", "more"))


def ensembles(*, callable_part: bool = False, **more: int) -> World:
    return started({**ENSEMBLES, "part": replace(ENSEMBLES["part"], callable=callable_part), **specs(more)})


def failed(world: World, error: str = "no such operator") -> lease.Refusal:
    (number,), (ticket,) = world.at_work, world.open
    world.end_load(number, error)
    answer = world.answers[ticket]
    assert isinstance(answer, lease.Busy | lease.Quarantined)
    return answer


# Pins


def test_a_model_that_is_pinned_later_evicts_even_recently_used_ones() -> None:
    world = started(specs({"a": 60, "b": 60}))
    had(world, "a")
    world.change("b", pinned=True)
    assert unloads(world) == [], "only a lease protects it"
    world.end_of_requests()
    assert (unloads(world), world.evictions[0].reason) == (["a"], "pinned")
    world.until(lambda: world.states["b"] == "resident")


def test_memory_that_a_pinned_model_waits_for_goes_to_no_other() -> None:
    world = started(specs({"x": 30, "p": 80, "a": 70}))
    had(world, "x")
    world.specs["p"] = replace(world.specs["p"], pinned=True)
    world.change("a", footprint_bytes=20)
    assert isinstance(world.ask("p1", "a", 0.0), lease.Busy)
    assert world.loads == ["x"], "there is room for a, but p needs all of it and more"
    world.end_of_requests()
    world.until(lambda: world.states["p"] == "resident")
    had(world, "a")


def test_memory_freed_for_one_model_and_claimed_by_a_pinned_one_blocks_neither() -> None:
    world = started(specs({"a": 50, "b": 50, "m": 50, "d": 50}), replace(RULES, measures=True))
    used(world, "a")
    had(world, "b", "p2")
    world.advance(60.0)
    world.renew("p2")
    world.ask("p1", "m", 5.0)
    assert unloads(world) == ["a"]
    world.change("d", pinned=True)
    for _ in range(30):
        world.finish()
        world.advance(1.0)
        world.renew("p2")
    assert "resident" in (world.states["d"], world.states["m"]), "50 bytes are free, and two models want them"


# Ensembles


def test_one_of_two_ensembles_goes_without_the_part_that_the_other_needs() -> None:
    world = ensembles(big=45)
    had(world, "pair")
    world.end_of_requests(50.0)
    had(world, "trio")
    world.ask("p2", "big", None)
    assert unloads(world) == ["pair"]
    assert "part" in world.loaded


def test_an_ensemble_and_its_part_go_in_one_unload_the_ensemble_first() -> None:
    world = ensembles(callable_part=True, big=90)
    had(world, "pair")
    had(world, "part")
    world.end_of_requests(100.0)
    world.ask("p1", "big", None)
    assert (unloads(world), len(world.at_work)) == (["pair", "part"], 1)
    assert world.states["part"] == "cold"


def test_parts_of_an_ensemble_that_failed_to_load_are_unloaded() -> None:
    world = ensembles()
    world.ask("p1", "trio", None)
    failed(world)
    assert set(world.loaded) == {"part", "more"}, "they did load"
    assert unloads(world) == ["trio", "part", "more"]
    world.finish()
    assert (world.loaded, world.charged()) == ({}, 0)


# Failures


@pytest.fixture
def world() -> World:
    return started(specs({"a": 40}))


def quarantine(world: World) -> list[object]:
    events: list[object] = []
    for n in range(RULES.failures_most):
        world.ask("p1", "a", None)
        events += world.end_load(world.working, "no such operator").events
        world.finish()
        world.advance(RULES.failure_backoff_seconds * 2**n)
    return events


def test_a_failed_load_is_reported_immediately_and_retried_later(world: World) -> None:
    world.ask("p1", "a", None)
    answer = failed(world)
    assert isinstance(answer, lease.Busy)
    assert answer.retry_after == RULES.failure_backoff_seconds
    assert "no such operator" in answer.why
    world.finish()
    assert world.busy("p1", "a", 1.0) == pytest.approx(RULES.failure_backoff_seconds)
    waits = world.ask("p1", "a", None)
    assert isinstance(world.answer(waits), lease.Granted), "the back-off ends within the caller's wait"
    assert world.loads == ["a", "a"]


def test_a_model_that_fails_again_and_again_is_quarantined_with_the_reason(world: World) -> None:
    events = quarantine(world)
    assert [event.retry_seconds for event in events if isinstance(event, LoadFailed)] == [4.0, 8.0, 16.0]
    assert Quarantined("a", "no such operator") in events
    world.change_rules(capacity_bytes=120)  # Settings that do not change the model.
    world.advance(100_000.0)
    answer = world.ask("p1", "a", None)
    assert isinstance(answer, lease.Quarantined)
    assert "no such operator" in answer.why
    assert len(world.loads) == RULES.failures_most


def test_quarantine_ends_with_a_new_version(world: World) -> None:
    quarantine(world)
    step = world.change("a", stamp="new")
    assert [event.model for event in step.events if isinstance(event, Allowed)] == ["a"]
    had(world, "a")


def test_no_model_is_evicted_for_one_whose_files_show_that_it_cannot_load() -> None:
    world = full({"a": 60, "bad": 50, "pin": 45})
    world.change("bad", stamp="broken", problem="its config.pbtxt cannot be read")
    world.change("pin", stamp="broken", problem="so is this one", pinned=True)
    world.advance(100.0)
    kinds: list[object] = []
    for n in range(RULES.failures_most):
        answer = world.ask("p1", "bad", None)
        assert "config.pbtxt cannot be read" in getattr(answer, "why", "")
        kinds.append(type(answer))
        again = world.ask("p2", "bad", None)
        assert type(again) is type(answer), "it is no further failure before it would be tried again"
        world.advance(RULES.failure_backoff_seconds * 2**n)
    assert kinds == [lease.Busy, lease.Busy, lease.Quarantined]
    assert (world.evictions, world.loads) == ([], ["a"])
    assert (world.states["bad"], world.states["pin"]) == ("quarantined", "cold")
    assert world.listed("pin").why == "so is this one"
    world.change("bad", stamp="repaired", problem="")
    assert unloads(world) == []
    had(world, "bad")


def test_waiting_callers_of_a_broken_model_get_the_error() -> None:
    world = full({"a": 60, "bad": 60})
    world.advance(25.0)
    ticket = world.ask("p1", "bad", None)
    world.change("bad", stamp="broken", problem="no such file")
    assert "no such file" in getattr(world.answered(ticket), "why", "")
    assert world.states["bad"] == "cold"


def test_old_failures_are_forgotten(world: World) -> None:
    for _ in range(2 * RULES.failures_most):
        world.ask("p1", "a", None)
        assert isinstance(failed(world), lease.Busy)
        world.finish()
        world.advance(RULES.failure_memory_seconds + 1)


def test_memory_of_a_failed_load_must_come_back_too(world: World) -> None:
    world.ask("p1", "a", None)
    world.lost = 30
    failed(world, "out of memory")
    world.finish()
    assert world.states["a"] == "freeing"
    world.advance(RULES.freeing_seconds)
    world.read()
    assert world.leaked == 30


def test_a_model_that_changes_while_it_is_loaded_is_loaded_again(world: World) -> None:
    ticket = world.ask("p1", "a", None)
    world.change("a", versions=(7,))
    answer = world.answer(ticket)
    assert isinstance(answer, lease.Granted)
    assert answer.versions == (7,)
    assert world.loads == ["a", "a"]
    assert world.listed("a").versions == (7,)
    world.lose_triton()
    assert (world.listed("a").state, world.listed("a").versions) == ("cold", ()), "versions are those in memory"


def test_a_model_that_is_removed_while_it_is_loaded_is_unknown_and_goes(world: World) -> None:
    ticket = world.ask("p1", "a", None)
    del world.specs["a"]
    world.configure()
    assert isinstance(world.answered(ticket), lease.Unknown)
    assert isinstance(world.at_work[world.working].command, Load)
    world.finish()
    world.finish()
    assert (world.states, world.loaded) == ({}, {})
