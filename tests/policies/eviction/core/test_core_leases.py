"""Leases: who has one, for how long, and what is never unloaded because of it."""

from dataclasses import replace

import pytest
from tidegate_contracts import lease
from tidegate_eviction.core.events import Load, Ticket, Unload
from tidegate_eviction.core.rules import ServerInventory
from tidegate_eviction.policies.registry import find

from .books import RULES, specs
from .world import World
from .worlds import started


@pytest.fixture
def world() -> World:
    """Room for two of three models; a and b are resident, and nobody holds them since second 20."""
    world = started(specs({"a": 40, "b": 40, "c": 40}))
    for name in ("a", "b"):
        world.ask("p1", name, None)
        world.until(lambda: not world.open)
        world.release("p1", name)
    world.now = 0.0
    world.advance(20.0)
    return world


def state(world: World, model: str) -> str:
    return world.states[model]


def use(in_flight: int = 0, idle: float = 0.0, requests: int = 0) -> lease.Use:
    return lease.Use(in_flight=in_flight, idle_seconds=idle, requests=requests)


def test_a_resident_model_is_leased_at_once(world: World) -> None:
    answer = world.ask("p1", "a", None)
    assert isinstance(answer, lease.Granted)
    assert (answer.lease_seconds, answer.waited_seconds) == (RULES.lease_seconds, 0.0)


def test_who_waited_for_a_load_counts_his_lease_from_when_he_asked(world: World) -> None:
    world.lose_triton()
    world.triton_back()
    ticket = world.ask("p1", "c", None)
    assert isinstance(ticket, Ticket)
    world.advance(3.0)
    world.until(lambda: not world.open)
    answer = world.answers[ticket.number]
    assert isinstance(answer, lease.Granted)
    assert answer.waited_seconds == 3.0
    assert answer.lease_seconds == RULES.lease_seconds + 3.0


def test_200_callers_of_a_cold_model_are_one_load(world: World) -> None:
    world.lose_triton()
    world.triton_back()
    before = len(world.loads)
    tickets = [world.ask(f"p{1 + n % 2}", "c", None) for n in range(200)]
    world.until(lambda: not world.open)
    assert world.loads[before:] == ["c"]
    assert all(isinstance(world.answers[t.number], lease.Granted) for t in tickets if isinstance(t, Ticket))


def test_a_leased_model_is_not_evicted_however_idle_it_is(world: World) -> None:
    for name in ("a", "b"):
        world.ask("p1", name, None)
    for _ in range(20):
        world.advance(5.0)
        world.renew("p1")
        assert isinstance(world.ask("p2", "c", 0.0), lease.Busy)
    assert world.evictions == []


def test_an_unrenewed_lease_ends_to_the_second_and_counts_as_used_until_then(world: World) -> None:
    now = world.now
    for name in ("a", "b"):
        world.ask("p1", name, None)
    world.proxies["p1"].clear()
    assert world.busy("p2", "c", 0.0) == pytest.approx(RULES.lease_seconds + RULES.idle_seconds)
    world.advance(RULES.lease_seconds - 0.5)
    assert world.residency.leases == 2
    world.advance(0.5)
    assert world.residency.leases == 0
    assert world.now == now + RULES.lease_seconds


def test_lease_renewed_before_the_policy_forgot_it_goes_on(world: World) -> None:
    world.ask("p1", "a", None)
    world.advance(RULES.lease_seconds - 1)
    assert world.renew("p1").lost == ()
    world.advance(RULES.lease_seconds - 1)
    assert world.residency.leases == 1


def test_lease_that_has_just_ended_is_given_anew_where_the_model_is_still_there(world: World) -> None:
    world.ask("p1", "a", None)
    world.advance(RULES.lease_seconds + 1)
    assert world.residency.leases == 0
    assert world.renew("p1").lost == ()
    assert world.residency.leases == 1


def test_shorter_leases_in_the_settings_shorten_none_that_was_granted(world: World) -> None:
    world.ask("p1", "a", None)
    ends = world.now + RULES.lease_seconds
    world.change_rules(lease_seconds=2.0)
    world.advance(1.0)
    assert world.renew("p1").lease_seconds == 2.0
    (held,) = world.residency.listing(world.now).models[0].leases
    assert held.seconds_left == ends - world.now
    world.advance(ends - 0.5 - world.now)
    assert world.residency.leases == 1
    world.advance(0.5)
    assert world.residency.leases == 0


def test_lease_on_a_model_that_has_gone_is_lost(world: World) -> None:
    world.advance(20.0)
    world.ask("p2", "c", None)
    world.until(lambda: not world.open)
    step, renewed = world.residency.renew("p1", world.residency.incarnation, {"a": use(), "b": use()}, world.now)
    world.take(step)
    assert renewed.lost == ("a",)
    assert set(renewed.resident) == {"b", "c"}


def test_lease_idle_for_a_whole_period_is_not_renewed(world: World) -> None:
    world.ask("p1", "a", None)
    world.proxies["p1"]["a"].in_flight = 0
    lost = []
    for _ in range(4):
        world.advance(5.0)
        lost.append(world.renew("p1").lost)
    assert lost[:3] == [(), (), ()]
    assert lost[3] == ("a",)


def test_pinned_models_are_renewed_however_idle_they_are() -> None:
    world = started(specs({"a": 40}, pinned=True))
    world.until(lambda: world.states["a"] == "resident")
    world.ask("p1", "a", None)
    world.proxies["p1"]["a"].in_flight = 0
    for _ in range(20):
        world.advance(5.0)
        assert world.renew("p1").lost == ()


def test_lru_takes_idle_leases_back_once_somebody_is_short_of_room(world: World) -> None:
    world.change_rules(policy=find("lru"))
    for name in ("a", "b"):
        world.ask("p1", name, None)
        world.proxies["p1"][name].in_flight = 0
    world.advance(4.0)
    assert world.renew("p1").lost == ()
    assert world.busy("p2", "c", 0.0) == pytest.approx(RULES.lease_seconds)
    world.advance(4.0)
    assert world.renew("p1").lost == ("a", "b")
    assert world.residency.leases == 2, "and yet they hold until they have ended"
    world.release("p1", "a")
    assert isinstance(world.ask("p2", "c", None), Ticket)
    world.until(lambda: not world.open)
    assert world.states["c"] == "resident"


def test_a_changed_model_drains_and_what_is_in_flight_holds_it(world: World) -> None:
    world.ask("p1", "a", None)
    world.change("a", stamp="new")
    assert state(world, "a") == "draining"
    for _ in range(10):
        world.advance(5.0)
        assert world.renew("p1").lost == ("a",), "nothing new may begin"
        assert state(world, "a") == "draining", "but what is under way goes on"
    world.proxies["p1"]["a"].in_flight = 0
    world.renew("p1")
    ticket = world.ask("p2", "a", 0.0)
    assert isinstance(ticket, lease.Busy)
    world.advance(RULES.lease_seconds)
    assert state(world, "a") == "unloading"


def test_who_asks_for_a_draining_model_gets_the_new_one(world: World) -> None:
    world.specs["a"] = replace(world.specs["a"], stamp="new", versions=(2,))
    world.ask("p1", "a", None)
    world.proxies["p1"]["a"].in_flight = 0
    world.configure()
    world.advance(10.0)
    ticket = world.ask("p2", "a", None)
    assert isinstance(ticket, Ticket)
    world.release("p1", "a")
    world.until(lambda: not world.open)
    answer = world.answers[ticket.number]
    assert isinstance(answer, lease.Granted)
    assert answer.versions == (2,)


def test_a_change_that_is_taken_back_ends_the_draining(world: World) -> None:
    world.ask("p1", "a", None)
    for stamp in ("new", ""):
        world.change("a", stamp=stamp)
    assert state(world, "a") == "resident"


def test_a_cancelled_ticket_gets_no_answer_and_its_load_goes_on(world: World) -> None:
    world.lose_triton()
    world.triton_back()
    ticket = world.ask("p1", "c", None)
    assert isinstance(ticket, Ticket)
    del world.open[ticket.number]
    world.take(world.residency.cancel(ticket, world.now))
    world.until(lambda: world.states["c"] == "resident")
    assert ticket.number not in world.answers


def test_who_waits_in_vain_is_told_so_at_his_bound_and_the_load_is_not_issued_again(world: World) -> None:
    world.lose_triton()
    world.triton_back()
    before = len(world.loads)
    ticket = world.ask("p1", "c", 2.0)
    world.advance(2.0)
    assert isinstance(world.answered(ticket), lease.Busy)
    later = world.ask("p1", "c", None)
    world.advance(4.0)
    assert len(world.loads) == before + 1
    assert isinstance(world.answer(later), lease.Granted)


def test_who_would_rather_go_elsewhere_than_wait_for_room_is_told_at_once(world: World) -> None:
    world.advance(5.0)
    step, answer = world.residency.acquire("c", "p1", None, world.now, room_seconds=0.0)
    assert isinstance(answer, lease.Busy)
    assert step.commands == []
    world.advance(5.0)
    step, answer = world.residency.acquire("c", "p1", None, world.now, room_seconds=0.0)
    assert isinstance(answer, Ticket), "by now somebody may go, and that is room"
    assert [type(command) for command in step.commands] == [Unload]


def test_release_of_another_incarnation_ends_nothing(world: World) -> None:
    world.ask("p1", "a", None)
    world.take(world.residency.release("p1", "long-ago", ["a"], world.now))
    assert world.residency.leases == 1


def test_a_release_that_is_late_ends_no_lease_that_was_granted_since(world: World) -> None:
    def release(serials: dict[str, int]) -> int:
        world.take(world.residency.release("p1", world.residency.incarnation, ["a"], world.now, serials))
        return world.residency.leases

    first, second = world.ask("p1", "a", None), world.ask("p1", "a", None)
    assert isinstance(first, lease.Granted)
    assert isinstance(second, lease.Granted)
    assert 0 < first.serial < second.serial
    assert release({"a": first.serial}) == 1
    assert release({"a": second.serial}) == 0
    assert isinstance(world.ask("p1", "a", None), lease.Granted)
    assert release({}) == 0, "who names none means whichever it is"

    world.residency.renew("p1", world.residency.incarnation, {"a": use(in_flight=1)}, world.now)
    assert release({"a": second.serial}) == 1, "given anew by a renewal"


def test_in_flight_of_an_earlier_incarnation_is_held_and_its_lease_is_lost(world: World) -> None:
    world.ask("p1", "a", None)
    world.restart_policy()
    step, renewed = world.residency.renew("p1", "start-0", {"a": use(in_flight=1), "b": use()}, world.now + 10)
    assert renewed.lost == ("a", "b")
    assert step.commands == []
    world.now += 10
    listed = {each.model: each for each in world.residency.listing(world.now).models}
    assert {held.holder for held in listed["a"].leases} == {"p1", "an earlier start"}
    assert {held.holder for held in listed["b"].leases} == {"an earlier start"}


def test_unknown_models_and_bare_parts_are_not_leased(world: World) -> None:
    assert isinstance(world.ask("p1", "nobody", None), lease.Unknown)
    world.change("a", callable=False)
    assert isinstance(world.ask("p1", "a", None), lease.Unknown)


def test_uses_are_learned_from_renewals() -> None:
    world = started(specs({"a": 40}))
    world.ask("p1", "a", None)
    world.until(lambda: not world.open)
    candidate = world.residency._pool.models["a"].candidate
    began = world.now
    for _ in range(3):
        world.advance(10.0)
        world.take(world.residency.renew("p1", "start-0", {"a": use(in_flight=1, requests=5)}, world.now)[0])
    assert candidate.gap_seconds == pytest.approx(2.0)
    world.take(world.residency.renew("p1", "start-0", {"a": use(idle=5.0)}, world.now)[0])
    assert candidate.last_use == began + 30.0, "never earlier than what was known"


def test_nothing_begins_before_the_index_was_read() -> None:
    world = World(specs({"a": 40}))
    ticket = world.ask("p1", "a", None)
    assert isinstance(ticket, Ticket)
    assert world.loads == []
    world.advance(1.0)
    step = world.take(world.residency.recover(ServerInventory(), world.now))
    assert [type(command) for command in step.commands] == [Load]
