from dataclasses import replace
from typing import Any

import pytest
from tidegate_contracts import lease
from tidegate_eviction.core.messages import (
    Leaked,
    Loaded,
    ModelSpec,
    Overrun,
    PoolSettings,
    Recycling,
    Ticket,
)

from .world import RULES, World, full, specs, started, unloads, used

NOISY = replace(RULES, tolerance_bytes=4)


def turn(world: World, name: str, missing: int = 0) -> None:
    """Load, use and release a model, evict another for it, and leave `stays` bytes of that one."""
    world.advance(100.0)
    world.ask("p1", name, None)
    if unloads(world):
        world.end_unload(world.working)
        world.lost += missing
        world.read()
    world.until(lambda: not world.open)
    world.release("p1", name)
    world.read()


def test_growth_at_work_is_the_base_and_not_a_leak() -> None:
    world = full({"a": 60, "b": 60}, NOISY)
    world.read()
    for _ in range(10):
        world.lost += 20
        world.read()
    turn(world, "b")
    assert (world.states["a"], world.leaked) == ("cold", 0)


@pytest.mark.parametrize(
    ("missing", "times", "leaked"),
    [((3,), 8, 8 * 3), ((1, -1, 3, -3), 100, 0)],
    ids=["small leaks add up", "noise is no leak"],
)
def test_shortfalls_within_the_noise_are_summed_up(missing: tuple[int, ...], times: int, leaked: int) -> None:
    world = full({"a": 60, "b": 60}, replace(NOISY, leak_budget_bytes=50))
    world.read()
    for n in range(times):
        turn(world, "ba"[n % 2], missing[n % len(missing)])
    assert world.leaked == pytest.approx(leaked, abs=4 + 3 if leaked else 0)


def test_missing_memory_of_models_found_at_a_start_is_unknown() -> None:
    world = started(specs({"a": 80, "b": 60}), real={"a": 50})
    used(world, "a")
    world.restart_policy()
    world.advance(100.0)
    world.ask("p1", "b", None)
    world.end_unload(world.working)
    world.read()
    assert world.states["a"] == "freeing"
    world.advance(0.1 * RULES.freeing_seconds)
    world.read()
    assert (world.states["a"], world.leaked) == ("cold", 0), "it is not waited for as long, and nothing is charged"


# Memory, as readings show it


def making_room(rules: PoolSettings = RULES, **sizes: int) -> World:
    """A world in which the last model is called and others are evicted for it: by default a for b."""
    sizes = sizes or {"a": 60, "b": 60}
    world = full(sizes, rules)
    world.advance(100.0)
    world.ask("p1", list(sizes)[-1], None)
    return world


def new(declared: int = 50, really: int = 33) -> dict[str, Any]:
    spec = ModelSpec("new", estimate_bytes=declared, estimate_from="estimated")
    return {"specs": {"new": spec}, "real": {"new": really}}


def test_memory_counts_as_free_only_when_the_driver_shows_it() -> None:
    world = making_room()
    world.end_unload(world.working, lingers=True)
    for _ in range(3):
        world.read()
        world.advance(1.0)
        assert world.states == {"a": "freeing", "b": "queued"}
    assert world.residency.reading_wanted
    world.lingering = 0
    world.read()
    assert world.states == {"a": "cold", "b": "loading"}


def test_memory_that_does_not_come_back_is_charged_until_it_does() -> None:
    world = making_room(a=20, b=80, c=20)
    world.end_unload(world.working, lingers=True)
    world.read()
    world.advance(RULES.freeing_seconds)
    step = world.take(world.residency.memory(1000 + 80 + 20, world.now))
    assert Leaked("a", 20, 20) in step.events
    listing = world.residency.listing(world.now)
    assert (listing.leaked_bytes, listing.freeing_bytes, listing.free_bytes) == (20, 80, 0)
    assert unloads(world) == ["b"], "its memory has leaked, so another model is evicted"
    world.lingering = 0
    world.until(lambda: not world.open and not world.at_work)
    world.read()
    assert world.leaked == 0


def test_past_the_leak_budget_triton_is_recycled_after_the_last_lease() -> None:
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
    assert world.leaked == 0


def test_a_model_that_only_a_leak_keeps_out_has_triton_restarted() -> None:
    world = making_room(replace(RULES, leak_budget_bytes=50), a=20, b=80, c=90)
    for number, begun in list(world.at_work.items()):
        world.end_unload(number, leaks=begun.command.model == "a")
    world.read()
    world.advance(RULES.freeing_seconds)
    world.read()
    assert world.recycled == 1


def test_a_failed_unload_is_retried_and_in_the_end_triton_is_restarted() -> None:
    world = making_room()
    for _ in range(RULES.unload_tries):
        assert world.states["a"] == "unloading"
        assert world.charged() == 60
        world.end_unload(world.working, "timed out")
        world.advance(5.0)
    assert world.recycled == 1


def test_a_load_of_unknown_size_runs_alone_and_is_measured() -> None:
    world = started(**new())
    world.change("a", footprint_bytes=10)
    world.ask("p1", "a", None)
    world.ask("p1", "new", None)
    world.advance(1.0)
    world.change("b", footprint_bytes=10)
    world.ask("p1", "b", None)
    assert world.loads == ["a"], "new waits for calm, and b behind it"
    world.until(lambda: not world.open)
    assert world.loads == ["a", "new", "b"]
    listed = world.listed("new")
    assert (listed.footprint_bytes, listed.footprint_from) == (33, "measured")


@pytest.mark.parametrize(
    ("known", "pinned", "charged"),
    [((20, 30, 50), 0, 30), ((20, 30, 50, 60), 0, 30), ((), 0, 10), ((50, 50, 50), 60, 40)],
    ids=["the median", "of two the lower", "a tenth of the capacity", "no more than pinned models leave"],
)
def test_a_load_of_unknown_size_is_charged_as_most_models_are(
    known: tuple[int, ...], pinned: int, charged: int
) -> None:
    world = started({"new": ModelSpec("new"), **specs({f"m{number}": size for number, size in enumerate(known)})})
    if pinned:
        world.change("always", footprint_bytes=pinned, pinned=True)
    world.until(lambda: not world.open and not world.at_work)
    world.ask("p1", "new", None)
    assert world.charged() - pinned == charged
    assert world.loads[-1] == "new"


def test_growth_during_overlapping_loads_measures_no_model() -> None:
    world = started(specs({"a": 30, "b": 30}))
    world.ask("p1", "a", None)
    world.ask("p1", "b", None)
    for number in list(world.at_work):
        world.loaded[world.at_work.pop(number).command.model] = 30
        step = world.take(world.residency.load_ended(number, world.now, None, 60))
        assert [event.measured for event in step.events if isinstance(event, Loaded)] == [{}]


@pytest.fixture
def unproved() -> World:
    return started(specs({"a": 40, "b": 40, "c": 40}), replace(RULES, first_load_margin=0.25))


def test_a_first_load_is_charged_a_quarter_more_until_it_is_measured(unproved: World) -> None:
    unproved.ask("p1", "a", None)
    assert unproved.charged() == 50
    unproved.finish()
    assert unproved.charged() == 40
    unproved.lose_triton()
    unproved.triton_back()
    unproved.ask("p1", "a", None)
    assert unproved.charged() == 40


def test_a_margin_of_overlapping_loads_ends_with_a_reading_within_the_estimate(
    unproved: World,
) -> None:
    unproved.ask("p1", "a", None)
    unproved.ask("p1", "b", None)
    assert unproved.charged() == 100
    unproved.end_load(unproved.working)
    assert unproved.charged() == 100
    unproved.read()
    assert unproved.charged() == 90
    unproved.end_load(unproved.working)
    unproved.read()
    assert unproved.charged() == 80
    unproved.lose_triton()
    unproved.triton_back()
    unproved.ask("p1", "a", None)
    assert unproved.charged() == 40, "no later load has one"


@pytest.mark.parametrize("in_use", [False, True])
def test_a_margin_evicts_idle_models_and_yields_to_models_in_use(unproved: World, in_use: bool) -> None:
    for name in "ab":
        unproved.ask("p1", name, None)
        unproved.finish()
    if not in_use:
        unproved.end_of_requests(100.0)
    unproved.change("d", footprint_bytes=20)
    unproved.ask("p1", "d", None)
    assert unloads(unproved) == ([] if in_use else ["a"])
    unproved.until(lambda: unproved.states["d"] == "resident")
    assert unproved.charged() == (100 if in_use else 60)


def test_without_readings_of_memory_there_is_no_margin() -> None:
    world = started(specs({"a": 40}), replace(RULES, first_load_margin=0.25, measures=False))
    world.ask("p1", "a", None)
    assert world.charged() == 40


def test_a_declaration_that_is_too_small_by_less_than_the_margin_overruns_nothing(unproved: World) -> None:
    unproved.real = {"a": 50, "b": 50}
    for name in "abc":
        unproved.ask("p1", name, 0.0)
        assert unproved.charged() <= RULES.capacity_bytes
    for number in list(unproved.at_work):
        unproved.end_load(number)
    unproved.read()
    assert (sum(unproved.loaded.values()), unproved.charged()) == (100, 100)


def test_a_disproved_declaration_stays_untrusted_after_a_restart() -> None:
    spec = ModelSpec("a", footprint_bytes=40, estimate_bytes=60, estimate_from="measured")
    world = started({"a": spec}, replace(RULES, first_load_margin=0.25), {"a": 60})
    world.ask("p1", "a", None)
    assert world.charged() == 60


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


def test_a_measurement_is_forgotten_when_the_content_changes() -> None:
    world = started(**new())
    used(world, "new")
    for stamp, size, source in (("", 33, "measured"), ("other", 33, "estimated")):
        world.change("new", stamp=stamp)
        listed = world.listed("new")
        assert (listed.footprint_bytes, listed.footprint_from) == (size, source)
    world.advance(RULES.lease_seconds)
    world.finish()
    world.real["new"] = 44
    world.ask("p1", "new", None)
    assert world.listed("new").footprint_bytes == 50
    world.until(lambda: not world.open)
    assert world.charged() == 44


@pytest.fixture
def crowded() -> World:
    """A world in which a takes 60 of 100 bytes, and another model 70, of which 30 are known."""
    world = full({"a": 60})
    world.specs |= new(30, 70)["specs"]
    world.real["new"] = 70
    world.configure()
    return world


@pytest.mark.parametrize("held", [False, True])
def test_a_model_larger_than_estimated_evicts_others_or_is_evicted(crowded: World, held: bool) -> None:
    if held:
        crowded.ask("p2", "a", None)
    else:
        crowded.advance(100.0)
    ticket = crowded.ask("p1", "new", None)
    step = crowded.end_load(crowded.working)
    assert any(isinstance(event, Overrun) and event.bytes == 30 for event in step.events)
    assert unloads(crowded) == (["new"] if held else ["a"])
    assert isinstance(crowded.answer(ticket), lease.Busy if held else lease.Granted)
