"""What is known of models whose files are to be near: which are in use, which come next."""

from dataclasses import replace

from tidegate_eviction.core.messages import Load, WarmWindow

from .books import RULES, specs
from .test_core_kept import ensembles
from .worlds import had, started, used


def test_who_waits_comes_first_then_who_was_told_to_come_back_then_whose_window_opens_soonest() -> None:
    rules = replace(RULES, loads_at_once=1, wait_seconds=60.0)
    world = started(specs(dict.fromkeys(("busy", "waits", "back", "late", "early", "later"), 20)), rules=rules)
    world.windows = (
        WarmWindow("late", ("late", "waits"), world.now + 3000, world.now + 4000),
        WarmWindow("early", ("early",), world.now + 2000, world.now + 4000),
        WarmWindow("later", ("later",), world.now + 3700, world.now + 4000),
    )
    world.configure()
    world.ask("p1", "busy", None)
    world.ask("p1", "waits", None)
    world.ask("p1", "back", 0.0)
    seen = world.residency.outlook(3600.0)
    assert seen.sure == ("waits", "back", "early", "late")
    assert world.residency.outlook(0.0).sure == ("waits", "back")
    assert seen.held == {"busy"}, "it is being loaded"
    assert not seen.resident


def test_a_window_that_is_open_or_whose_models_are_warm_wants_no_more_files() -> None:
    world = started(specs({"a": 20, "b": 20}))
    had(world, "a")
    world.windows = (
        WarmWindow("past", ("b",), world.now - 100, world.now - 50),
        WarmWindow("soon", ("a",), world.now + 1000, world.now + 2000),
    )
    world.configure()
    assert world.residency.outlook(3600.0).sure == ()


def test_what_is_called_regularly_is_likely_until_it_has_been_silent_for_two_gaps() -> None:
    world = started(specs({"a": 40, "b": 40, "c": 40, "once": 40}))
    for _ in range(4):
        for name, pause in (("a", 40.0), ("b", 60.0)):
            used(world, name)
            world.advance(pause)
    assert world.residency.outlook(0.0).likely == (), "both are warm"
    for name in ("once", "c"):
        used(world, name)
        world.advance(RULES.idle_seconds)
    assert {name for name, state in world.states.items() if state == "cold"} == {"a", "b"}
    seen = world.residency.outlook(0.0)
    assert seen.likely == ("a", "b")
    assert (seen.uses["a"].gap_seconds, seen.uses["once"].gap_seconds) == (100.0, 0.0)
    world.advance(seen.uses["a"].last_use + 200.0 - world.now)
    assert world.residency.outlook(0.0).likely == ("b",)


def test_parts_are_loaded_with_a_model_that_has_them_and_needed_while_another_load_has_them() -> None:
    world = ensembles()
    had(world, "pair")
    seen = world.residency.outlook(0.0)
    assert seen.held == seen.resident == {"pair", "part"}
    world.ask("p1", "trio", None)
    assert [each.command.model for each in world.at_work.values() if isinstance(each.command, Load)] == ["trio"]
    seen = world.residency.outlook(0.0)
    assert seen.held == {"pair", "trio", "part", "more"}
    assert seen.resident == {"pair"}, "the load of trio may read the part again"
    world.until(lambda: world.states["trio"] == "resident")
    assert world.residency.outlook(0.0).resident == {"pair", "trio", "part", "more"}
