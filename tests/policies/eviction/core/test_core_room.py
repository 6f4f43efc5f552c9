"""Room: who goes for whom, when, and what is told to those there is none for."""

from dataclasses import replace

import pytest
from tidegate_contracts import lease
from tidegate_eviction.core.events import (
    Leaked,
    Load,
    Loaded,
    Overrun,
    PolicyFailed,
    Recycle,
    Recycling,
    Ticket,
    Unload,
)
from tidegate_eviction.core.rules import ModelSpec, PoolRules
from tidegate_eviction.policies.policy import Candidate, Policy
from tidegate_eviction.policies.registry import find

from .world import RULES, Begun, World, had, specs, started


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
    had(world, name)
    world.release("p1", name)


def unloads(world: World) -> list[str]:
    return [each.command.model for each in world.at_work.values() if isinstance(each.command, Unload)]


def under_way(world: World) -> Begun:
    (begun,) = world.at_work.values()
    return begun


@pytest.mark.parametrize("early", [0.0, 0.001, 5.0])
def test_idle_for_exactly_the_limit_may_go_and_a_moment_less_may_not(early: float) -> None:
    world = full({"a": 60, "b": 60})
    used = world.now - 1.0
    world.advance(used + RULES.idle_seconds - early - world.now)
    answer = world.ask("p1", "b", 0.0)
    assert isinstance(answer, lease.Busy)
    assert unloads(world) == ([] if early else ["a"])
    if early:
        assert answer.retry_after == pytest.approx(early, abs=1e-5)


def test_busy_says_the_exact_second_and_who_comes_then_gets_room() -> None:
    world = full({"a": 30, "b": 30, "c": 30, "d": 70})
    retry_after = world.busy("p1", "d", 0.0)
    assert retry_after == pytest.approx(RULES.idle_seconds - 2.0), "a and b must be idle; c may stay"
    world.advance(retry_after)
    assert isinstance(world.ask("p1", "d", None), Ticket)
    assert unloads(world) == ["a", "b"]


def test_busy_is_capped() -> None:
    world = full({"a": 60, "b": 60}, replace(RULES, idle_seconds=300.0))
    assert world.busy("p1", "b", None) == RULES.retry_most_seconds


def test_a_waiter_who_can_be_served_within_his_bound_waits_for_it() -> None:
    world = full({"a": 60, "b": 60})
    world.advance(RULES.idle_seconds - RULES.wait_seconds + 4.0)
    ticket = world.ask("p1", "b", None)
    assert isinstance(world.answer(ticket), lease.Granted)


def test_too_large_is_said_at_once_and_nobody_goes_for_it() -> None:
    world = full({"a": 40, "pin": 30, "big": 71})
    world.change("pin", pinned=True)
    world.advance(500.0)
    answer = world.ask("p1", "big", None)
    assert isinstance(answer, lease.TooLarge)
    assert (answer.needed_bytes, answer.capacity_bytes) == (71, 70)
    assert world.evictions == []


def test_what_nothing_is_known_of_is_never_too_large() -> None:
    world = World({**specs({"a": 90, "b": 90}), "new": ModelSpec("new")})
    world.change("a", pinned=True)
    world.recover()
    world.until(lambda: world.states["a"] == "resident")
    assert isinstance(world.ask("p1", "new", None), Ticket)


def test_room_that_was_made_for_somebody_is_not_taken_by_who_comes_later() -> None:
    world = full({"a": 50, "b": 50, "big": 90, "late": 50})
    world.advance(100.0)
    first = world.ask("p1", "big", None)
    world.end_unload(world.working)
    late = [world.ask("p2", "late", None) for _ in range(5)]
    world.until(lambda: world.states["big"] == "loading")
    assert isinstance(first, Ticket)
    assert "late" not in world.loads
    assert all(isinstance(answer, lease.Busy | Ticket) for answer in late)


def test_the_model_with_more_waiters_goes_first() -> None:
    world = full({"a": 90, "b": 60, "c": 60}, replace(RULES, loads_at_once=1))
    world.advance(100.0)
    world.lose_triton()
    world.ask("p1", "b", None)
    for _ in range(3):
        world.ask("p1", "c", None)
    world.triton_back()
    assert under_way(world).command.model == "c"


def test_but_who_has_waited_for_long_goes_before_all_of_them() -> None:
    world = World(specs({"a": 60, "b": 60, "c": 60}), replace(RULES, loads_at_once=1))
    world.ask("p1", "b", None)
    world.advance(RULES.overdue_seconds)
    for _ in range(3):
        world.ask("p1", "c", None)
    world.recover()
    assert under_way(world).command.model == "b"


def test_who_was_told_busy_and_comes_back_in_time_has_kept_his_place() -> None:
    world = started(specs({"x": 20, "a": 20, "b": 20}), replace(RULES, loads_at_once=1))
    world.ask("p1", "x", None)
    assert isinstance(world.ask("p1", "a", 0.0), lease.Busy)
    assert world.states["a"] == "cold"
    world.advance(RULES.overdue_seconds)
    for _ in range(3):
        world.ask("p2", "b", None)
    world.ask("p1", "a", None)
    world.end_load(world.working)
    assert under_way(world).command.model == "a"


def test_who_has_waited_for_long_and_will_have_room_in_time_is_not_passed_by_who_takes_some_of_it() -> None:
    small = {f"s{n}": 25 for n in range(5)}
    world = full({**small, "large": 100}, replace(RULES, wait_seconds=20.0))
    world.advance(24.0 - world.now)
    world.ask("p1", "large", None)
    world.advance(6.5)
    world.ask("p2", "s4", None)
    assert world.evictions == [], "s0 might go by now, but large needs it too"
    world.until(lambda: world.states["large"] == "resident")
    assert "s4" not in world.loads


def test_small_models_do_not_starve_a_large_one() -> None:
    """The large one needs all that the small ones take in turn, each as soon as there is a gap."""
    small = {f"s{n}": 25 for n in range(8)}
    world = full({**small, "large": 100}, replace(RULES, idle_seconds=0.0, lease_seconds=2.0, wait_seconds=30.0))
    ticket = world.ask("p1", "large", None)
    assert isinstance(ticket, Ticket)
    for n in range(200):
        if ticket.number in world.answers:
            break
        world.ask("p2", f"s{n % 8}", None)
        world.finish()
        world.end_of_requests()
        world.advance(0.5)
    assert isinstance(world.answers[ticket.number], lease.Granted)


def test_no_more_loads_at_once_than_are_allowed() -> None:
    world = started(specs(dict.fromkeys("abcdef", 10)))
    for name in "abcdef":
        world.ask("p1", name, None)
    assert len(world.at_work) == RULES.loads_at_once
    world.until(lambda: not world.open)
    assert sorted(world.loads) == list("abcdef")


def test_anti_thrash_a_dear_model_stays_as_long_as_its_load_took() -> None:
    world = started(specs({"dear": 60, "other": 60}), replace(RULES, idle_seconds=0.0, residency_factor=2.0))
    world.ask("p1", "dear", None)
    world.advance(7.0)
    world.end_load(world.working)
    loaded = world.now
    world.release("p1", "dear")
    assert world.busy("p1", "other", 0.0) == pytest.approx(2 * 7.0)
    world.advance(14.0 - 0.1)
    assert isinstance(world.ask("p1", "other", 0.0), lease.Busy)
    assert unloads(world) == []
    world.advance(0.1)
    world.ask("p1", "other", 0.0)
    assert unloads(world) == ["dear"]
    assert world.now - loaded == pytest.approx(14.0)


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_anti_thrash_two_models_in_turn_do_not_spend_more_than_its_share_on_loading(factor: float) -> None:
    rules = replace(RULES, idle_seconds=0.0, residency_factor=factor, lease_seconds=0.5)
    world = started(specs({"a": 60, "b": 60}), rules)
    loading = 0.0
    for n in range(400):
        world.ask("p1", "ab"[n % 2], 1.0)
        if any(isinstance(begun.command, Load) for begun in world.at_work.values()):
            world.advance(5.0)
            loading += 5.0
        world.finish()
        for model in list(world.proxies["p1"]):
            world.release("p1", model)
        world.advance(0.5)
    assert loading > 0.1 * world.now, "they do take turns"
    assert loading / world.now <= 1 / (1 + factor) + 0.01


def test_room_is_free_only_when_memory_is_back() -> None:
    world = full({"a": 60, "b": 60})
    world.advance(100.0)
    world.ask("p1", "b", None)
    world.end_unload(world.working, lingers=True)
    for _ in range(3):
        world.read()
        world.advance(1.0)
        assert world.states == {"a": "freeing", "b": "queued"}
    assert world.residency.reading_wanted
    world.lingering = 0
    world.read()
    assert world.states == {"a": "cold", "b": "loading"}


def test_memory_that_does_not_come_back_is_charged() -> None:
    world = full({"a": 20, "b": 80})
    world.advance(100.0)
    world.change("c", footprint_bytes=20)
    world.ask("p1", "c", None)
    world.end_unload(world.working, leaks=True)
    world.read()
    world.advance(RULES.freeing_seconds)
    step = world.take(world.residency.memory(1000 + 80 + 20, world.now))
    assert Leaked("a", 20, 20) in step.events
    listing = world.residency.listing(world.now)
    assert (listing.leaked_bytes, listing.freeing_bytes, listing.free_bytes) == (20, 80, 0)
    assert unloads(world) == ["b"], "its room has leaked: somebody else must go"


def test_memory_that_comes_back_late_is_no_leak_any_more() -> None:
    world = full({"a": 20, "b": 70})
    world.advance(100.0)
    world.change("c", footprint_bytes=25)
    world.ask("p1", "c", None)
    world.end_unload(world.working, lingers=True)
    world.read()
    world.advance(RULES.freeing_seconds)
    world.take(world.residency.memory(1000 + 70 + 20, world.now))
    assert world.residency.listing(world.now).leaked_bytes == 20
    world.lingering = 0
    world.until(lambda: not world.open and not world.at_work)
    world.read()
    assert world.residency.listing(world.now).leaked_bytes == 0


def test_past_the_leak_budget_the_pod_asks_to_be_recycled_once_nobody_holds_a_lease() -> None:
    world = full({"a": 40, "b": 40, "c": 40})
    world.advance(100.0)
    world.ask("p1", "b", None)
    world.ask("p2", "c", None)
    world.end_unload(world.working, leaks=True)
    world.read()
    world.advance(RULES.freeing_seconds)
    step = world.read()
    assert any(isinstance(event, Recycling) for event in step.events)
    assert world.recycled == 0
    assert isinstance(world.ask("p2", "b", None), lease.Busy), "no new leases"
    for _ in range(5):
        world.advance(5.0)
        assert world.renew("p1").lost == ("b",)
        assert world.recycled == 0, "what is under way goes on"
    world.proxies["p1"]["b"].in_flight = 0
    world.renew("p1")
    world.advance(RULES.lease_seconds)
    assert world.recycled == 1
    world.lose_triton()
    world.triton_back()
    assert isinstance(world.ask("p2", "c", None), Ticket)
    assert world.residency.listing(world.now).leaked_bytes == 0


def test_a_model_that_only_a_leak_keeps_out_has_triton_restarted() -> None:
    world = full({"a": 20, "b": 80, "c": 90}, replace(RULES, leak_budget_bytes=50))
    world.advance(100.0)
    world.ask("p1", "c", None)
    for number, begun in list(world.at_work.items()):
        world.end_unload(number, leaks=begun.command.model == "a")
    world.read()
    world.advance(RULES.freeing_seconds)
    world.read()
    assert world.recycled == 1


def test_an_unload_that_fails_is_told_again_and_in_the_end_triton_is_restarted() -> None:
    world = full({"a": 60, "b": 60})
    world.advance(100.0)
    world.ask("p1", "b", None)
    for _ in range(RULES.unload_tries):
        assert world.states["a"] == "unloading"
        assert world.charged() == 60
        world.end_unload(world.working, "timed out")
        world.advance(5.0)
    assert world.recycled == 1


def test_a_load_of_unknown_size_runs_alone_and_is_measured() -> None:
    world = World({**specs({"a": 10}), "new": ModelSpec("new", estimate_bytes=50, estimate_from="estimated")})
    world.real["new"] = 33
    world.recover()
    world.ask("p1", "a", None)
    world.ask("p1", "new", None)
    world.advance(1.0)
    world.change("b", footprint_bytes=10)
    world.ask("p1", "b", None)
    assert world.loads == ["a"], "new waits for calm, and b behind it"
    world.until(lambda: not world.open)
    assert world.loads == ["a", "new", "b"]
    listed = {each.model: each for each in world.residency.listing(world.now).models}
    assert (listed["new"].footprint_bytes, listed["new"].footprint_from) == (33, "measured")


def test_what_memory_grew_by_while_others_were_loaded_is_nobodys_measure() -> None:
    world = started(specs({"a": 30, "b": 30}))
    world.ask("p1", "a", None)
    world.ask("p1", "b", None)
    for number in list(world.at_work):
        world.loaded[world.at_work.pop(number).command.model] = 30
        step = world.take(world.residency.load_ended(number, world.now, None, 60))
        assert [event.measured for event in step.events if isinstance(event, Loaded)] == [{}]


def test_a_load_that_hangs_while_it_is_measured_does_not_stop_the_others_for_ever() -> None:
    world = started({**specs({"a": 30, "b": 30}), "new": ModelSpec("new")})
    world.ask("p1", "new", None)
    world.ask("p1", "a", None)
    world.advance(RULES.alone_seconds - 1.0)
    ticket = world.ask("p1", "b", None)
    assert world.loads == ["new"]
    world.advance(1.0)
    assert world.loads == ["new", "b"]
    world.end_load(max(world.at_work))
    assert isinstance(world.answered(ticket), lease.Granted)


def test_what_was_measured_is_forgotten_with_the_content_that_it_was_of() -> None:
    world = World({"new": ModelSpec("new", estimate_bytes=50, estimate_from="estimated")})
    world.real["new"] = 33
    world.recover()
    used(world, "new")
    for stamp, size, source in (("", 33, "measured"), ("other", 33, "estimated")):
        world.change("new", stamp=stamp)
        (listed,) = world.residency.listing(world.now).models
        assert (listed.footprint_bytes, listed.footprint_from) == (size, source)
    world.advance(RULES.lease_seconds)
    world.finish()
    world.real["new"] = 44
    ticket = world.ask("p1", "new", None)
    (begun,) = world.at_work.values()
    assert isinstance(begun.command, Load)
    assert begun.command.needed_bytes == 50
    world.until(lambda: not world.open)
    assert isinstance(ticket, Ticket)
    assert world.charged() == 44


def test_a_declaration_that_is_too_small_does_not_hide_what_was_measured() -> None:
    world = World(specs({"a": 30}))
    world.real["a"] = 44
    world.recover()
    used(world, "a")
    assert world.charged() == 44


def test_without_readings_room_is_free_when_triton_says_unloaded() -> None:
    world = full({"a": 60, "b": 60}, replace(RULES, measures=False))
    world.advance(100.0)
    world.ask("p1", "b", None)
    world.end_unload(world.working)
    assert world.states == {"a": "cold", "b": "loading"}


def test_a_model_larger_than_thought_has_others_go() -> None:
    world = full({"a": 60})
    world.specs["new"] = ModelSpec("new", estimate_bytes=30, estimate_from="estimated")
    world.real["new"] = 70
    world.configure()
    world.advance(100.0)
    ticket = world.ask("p1", "new", None)
    step = world.end_load(world.working)
    assert isinstance(world.answered(ticket), lease.Granted)
    assert any(isinstance(event, Overrun) and event.bytes == 30 for event in step.events)
    assert unloads(world) == ["a"]


def test_a_model_larger_than_thought_goes_itself_if_nobody_else_may() -> None:
    world = full({"a": 60})
    world.ask("p2", "a", None)
    world.specs["new"] = ModelSpec("new", estimate_bytes=30, estimate_from="estimated")
    world.real["new"] = 70
    world.configure()
    ticket = world.ask("p1", "new", None)
    world.end_load(world.working)
    assert unloads(world) == ["new"]
    assert isinstance(world.answer(ticket), lease.Busy)
    assert world.residency.listing(world.now).free_bytes == 40


def test_a_smaller_capacity_is_reached_as_models_may_go() -> None:
    world = full({"a": 40, "b": 40})
    step = world.change_rules(capacity_bytes=50)
    assert any(isinstance(event, Overrun) and event.bytes == 30 for event in step.events)
    world.advance(RULES.idle_seconds)
    assert unloads(world) == ["a"]


def test_a_policy_that_chooses_too_few_is_helped_out() -> None:
    lazy = Policy("lazy", "Chooses one.", lambda candidates, _needed, _now: candidates[-1:], idle_limits=False)
    world = full({"a": 30, "b": 30, "c": 30, "d": 90}, replace(RULES, policy=lazy))
    world.advance(50.0)
    assert isinstance(world.ask("p1", "d", None), Ticket)
    assert sorted(unloads(world)) == ["a", "b", "c"]


def test_a_policy_that_fails_is_told_and_the_least_recently_used_go() -> None:
    def broken(_candidates: object, _needed: int, _now: float) -> list[Candidate]:
        raise KeyError("no such model")

    world = full({"a": 30, "b": 30, "c": 30, "d": 60}, replace(RULES, policy=Policy("mine", "", broken)))
    world.advance(100.0)
    step, answer = world.residency.acquire("d", "p1", None, world.now)
    assert isinstance(answer, Ticket)
    assert PolicyFailed("mine", "KeyError: 'no such model'") in step.events
    assert [command.model for command in step.commands if isinstance(command, Unload)] == ["a", "b"]


def test_with_the_policy_pinned_nobody_goes() -> None:
    world = full({"a": 60, "b": 60}, replace(RULES, policy=find("pinned")))
    world.advance(1000.0)
    assert isinstance(world.ask("p1", "b", None), lease.Busy)
    assert world.evictions == []


def test_recycle_is_ordered_once() -> None:
    world = full({"a": 60, "b": 60})
    world.advance(100.0)
    world.residency._pool.recycle("a test asked for it")
    steps = [world.take(world.residency.tick(world.now + n)) for n in range(5)]
    assert [command for step in steps for command in step.commands] == [Recycle("a test asked for it")]
