from dataclasses import replace

import pytest
from tidegate_contracts import lease
from tidegate_eviction.core.messages import Load, Loaded, ModelSpec, PolicyFailed, Ticket, Unload
from tidegate_eviction.policies.policy import Candidate, Policy

from .world import RULES, World, full, specs, started, under_way, unloads, used


@pytest.mark.parametrize("early", [0.0, 0.001, 5.0])
def test_idle_for_exactly_the_limit_may_go_and_a_moment_less_may_not(early: float) -> None:
    world = full({"a": 60, "b": 60})
    used = world.now - 1.0
    world.advance(used + RULES.idle_seconds - early - world.now)
    answer = world.ask("p1", "b", 0.0)
    assert isinstance(answer, lease.Busy)
    assert answer.reason == ("no-room" if early else "queued")
    assert unloads(world) == ([] if early else ["a"])
    if early:
        assert answer.retry_after == pytest.approx(early, abs=1e-5)


def test_busy_has_the_exact_second_and_a_caller_then_gets_memory() -> None:
    world = full({"a": 30, "b": 30, "c": 30, "d": 70})
    retry_after = world.busy("p1", "d", 0.0)
    assert retry_after == pytest.approx(RULES.idle_seconds - 2.0), "a and b must be idle, but c can stay"
    world.advance(retry_after)
    assert isinstance(world.ask("p1", "d", None), Ticket)
    assert unloads(world) == ["a", "b"]


def test_a_load_reports_its_wait_for_memory_and_its_duration() -> None:
    world = full({"a": 50, "b": 50, "big": 90})
    world.advance(100.0)
    assert isinstance(world.ask("p1", "big", None), Ticket)
    for _ in range(2):
        world.advance(3.0)
        world.end_unload(world.working)
        world.read()
    world.advance(4.0)
    [loaded] = [event for event in world.end_load(world.working).events if isinstance(event, Loaded)]
    assert loaded.queued_seconds == pytest.approx(6.0)
    assert loaded.seconds == pytest.approx(4.0)


def test_too_large_is_returned_immediately_and_no_model_is_evicted() -> None:
    world = full({"a": 40, "pin": 30, "big": 71})
    world.change("pin", pinned=True)
    world.advance(500.0)
    answer = world.ask("p1", "big", None)
    assert isinstance(answer, lease.TooLarge)
    assert (answer.needed_bytes, answer.capacity_bytes) == (71, 70)
    assert world.evictions == []


def test_a_model_of_unknown_size_is_never_too_large() -> None:
    world = World({**specs({"a": 90, "b": 90}), "new": ModelSpec("new")})
    world.change("a", pinned=True)
    world.recover()
    world.until(lambda: world.states["a"] == "resident")
    assert isinstance(world.ask("p1", "new", None), Ticket)


def test_memory_freed_for_a_model_is_not_taken_by_later_ones() -> None:
    world = full({"a": 50, "b": 50, "big": 90, "late": 50, "tiny": 10})
    world.advance(100.0)
    first = world.ask("p1", "big", None)
    world.end_unload(world.working)
    world.read()
    world.ask("p2", "tiny", None)
    assert world.states["tiny"] == "queued", "it will fit next to big, but big comes first"
    late = [world.ask("p2", "late", None) for _ in range(5)]
    world.until(lambda: world.states["big"] == "loading")
    assert isinstance(first, Ticket)
    assert "late" not in world.loads
    assert all(isinstance(answer, lease.Busy | Ticket) for answer in late)


def test_no_model_is_evicted_for_another_before_its_turn() -> None:
    sizes = {"a": 25, "b": 25, "c": 25, "d": 25, "e": 25, "f": 25, "g": 25}
    world = full(sizes, replace(RULES, idle_seconds=0.0, loads_at_once=2))
    world.advance(20.0)
    for model in "efg":
        world.ask("p1", model, None)
    assert unloads(world) == ["a", "b"], "two are loaded at once: c may still be called"
    for number in list(world.at_work):
        world.end_unload(number)
    world.read()
    assert world.loads[-2:] == ["e", "f"]
    assert unloads(world) == []
    world.end_load(world.working)
    assert unloads(world) == ["c"]


@pytest.mark.parametrize(("waited", "first"), [(0.0, "c"), (RULES.overdue_seconds, "b")])
def test_the_model_with_more_waiters_goes_first_unless_another_has_waited_for_long(waited: float, first: str) -> None:
    world = World(specs({"a": 60, "b": 60, "c": 60}), replace(RULES, loads_at_once=1))
    world.ask("p1", "b", None)
    world.advance(waited)
    for _ in range(3):
        world.ask("p1", "c", None)
    world.recover()
    assert under_way(world).command.model == first


def test_a_refused_caller_that_returns_on_time_keeps_its_place() -> None:
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


def test_a_long_waiting_caller_is_not_overtaken_by_one_that_needs_its_memory() -> None:
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
    """The large model needs all the memory that the small ones use in turn, each as soon as there is a gap."""
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


def test_a_policy_that_chooses_too_few_is_helped_out() -> None:
    lazy = Policy("lazy", "", lambda candidates, _needed, _now: candidates[-1:])
    world = full({"a": 30, "b": 30, "c": 30, "d": 90}, replace(RULES, policy=lazy))
    world.advance(50.0)
    world.ask("p1", "d", None)
    assert sorted(unloads(world)) == ["a", "b", "c"]


def test_a_failing_policy_is_reported_and_the_least_recently_used_are_evicted() -> None:
    def broken(_candidates: object, _needed: int, _now: float) -> list[Candidate]:
        raise KeyError("no such model")

    world = full({"a": 30, "b": 30, "c": 30, "d": 60}, replace(RULES, policy=Policy("mine", "", broken)))
    world.advance(100.0)
    step, answer = world.residency.acquire("d", "p1", None, world.now)
    assert isinstance(answer, Ticket)
    assert PolicyFailed("mine", "KeyError: 'no such model'") in step.events
    assert [command.model for command in step.commands if isinstance(command, Unload)] == ["a", "b"]


def test_a_listing_has_the_refusals_of_the_last_five_minutes() -> None:
    world = started(specs({"x": 20, "a": 20}), replace(RULES, loads_at_once=1))
    world.ask("p1", "x", None)
    for _ in range(3):
        assert isinstance(world.ask("p1", "a", 0.0), lease.Busy)
        world.advance(1.0)

    def busy() -> dict[str, int]:
        return {each.model: each.busy for each in world.residency.listing(world.now).models}

    assert busy() == {"x": 0, "a": 3}
    world.now += lease.BUSY_SECONDS - 1.5
    assert busy() == {"x": 0, "a": 1}


def test_a_repeatedly_refused_model_is_listed_without_memory_since_the_first_refusal() -> None:
    world = full({"a": 60, "b": 60})

    world.busy("p2", "b", 0.0)
    began = world.now
    for _ in range(3):
        world.advance(RULES.idle_seconds / 3)
        world.ask("p1", "a", None)
        world.busy("p2", "b", 0.0)
        found = world.listed("b")
        assert found.state == "cold"
        assert found.no_room_seconds == pytest.approx(world.now - began)
        assert found.why.startswith("the memory is full")
    world.end_of_requests()
    world.advance(RULES.idle_seconds)
    waits = world.ask("p2", "b", None)
    assert world.listed("b").no_room_seconds == pytest.approx(world.now - began), "its room is still being freed"
    assert isinstance(world.answer(waits), lease.Granted)
    assert world.listed("b").no_room_seconds is None


@pytest.mark.parametrize("why", ["others may be evicted for it", "it was not called in five minutes"])
def test_a_model_starves_no_more_once(why: str) -> None:
    world = full({"a": 60, "b": 60})
    world.busy("p2", "b", 0.0)
    assert world.listed("b").no_room_seconds is not None
    if why == "others may be evicted for it":
        world.end_of_requests(RULES.idle_seconds + RULES.lease_seconds)
    else:
        world.advance(lease.BUSY_SECONDS)
    assert (world.listed("b").no_room_seconds, world.listed("b").why) == (None, "")


def test_a_load_for_spare_memory_gets_it_or_is_refused_at_once_without_evictions() -> None:
    world = started(specs({"a": 40, "b": 40, "c": 40}))
    used(world, "a")
    ticket = world.ask("p1", "b", None, spare=True)
    assert isinstance(world.answer(ticket), lease.Granted), "there was room"
    world.release("p1", "b")
    world.advance(RULES.idle_seconds)
    refused = world.ask("p1", "c", None, spare=True)
    assert isinstance(refused, lease.Busy), "a or b could go for it, and do not"
    assert refused.reason == "no-room"
    assert (world.states["a"], world.states["b"], world.states["c"]) == ("resident", "resident", "cold")
    assert isinstance(world.ask("p2", "b", None, spare=True), lease.Granted), "it is there"


@pytest.mark.parametrize("size", [20, 21])
def test_spare_memory_is_the_rest_after_all_waiting_loads(size: int) -> None:
    world = started(specs({"a": 40, "b": 40, "c": size}), replace(RULES, loads_at_once=1))
    for model in ("a", "b"):
        world.ask("p1", model, None)
    assert world.states["b"] == "queued"
    assert isinstance(world.ask("p2", "c", None, spare=True), Ticket if size == 20 else lease.Busy)
