import pytest
from tidegate_contracts import lease
from tidegate_eviction.core.messages import Ticket, Unload

from .world import RULES, World, specs, started, used


@pytest.fixture
def world() -> World:
    """Memory for two of three models. a and b are resident, without leases since second 20."""
    world = started(specs({"a": 40, "b": 40, "c": 40}))
    for name in ("a", "b"):
        used(world, name)
    world.now = 0.0
    world.advance(20.0)
    return world


def use(in_flight: int = 0, idle: float = 0.0, requests: int = 0) -> lease.Use:
    return lease.Use(in_flight=in_flight, idle_seconds=idle, requests=requests)


def test_a_holder_that_waited_for_a_load_times_its_lease_from_the_request() -> None:
    world = started(specs({"c": 40}))
    ticket = world.ask("p1", "c", None)
    world.advance(3.0)
    for answer, waited in ((world.answer(ticket), 3.0), (world.ask("p1", "c", None), 0.0)):
        assert isinstance(answer, lease.Granted)
        assert (answer.waited_seconds, answer.lease_seconds) == (waited, RULES.lease_seconds + waited)


def test_an_unrenewed_lease_ends_to_the_second_and_counts_as_used_until_then(world: World) -> None:
    for name in ("a", "b"):
        world.ask("p1", name, None)
    world.proxies["p1"].clear()
    assert world.busy("p2", "c", 0.0) == pytest.approx(RULES.idle_seconds), "a proxy gives back what it does not use"
    world.advance(9.0)
    whole = RULES.lease_seconds + RULES.idle_seconds
    assert world.busy("p2", "c", 0.0) == pytest.approx(whole - 9.0), "it was not renewed when it should have been"
    for seconds, leases in ((RULES.lease_seconds - 9.5, 2), (0.5, 0)):
        world.advance(seconds)
        assert world.residency.leases == leases


@pytest.mark.parametrize("late", [-1, 1])
def test_an_ended_lease_is_granted_again_if_the_model_is_still_loaded(world: World, late: float) -> None:
    world.ask("p1", "a", None)
    world.advance(RULES.lease_seconds + late)
    assert world.residency.leases == (late < 0)
    assert world.renew("p1").lost == ()
    world.advance(RULES.lease_seconds - 1)
    assert world.residency.leases == 1


@pytest.mark.parametrize(("pinned", "last"), [(False, ("a",)), (True, ())])
def test_a_lease_idle_for_a_whole_period_is_renewed_only_for_pinned_models(
    world: World, pinned: bool, last: tuple[str, ...]
) -> None:
    world.change("a", pinned=pinned)
    world.ask("p1", "a", None)
    world.proxies["p1"]["a"].in_flight = 0
    for lost in ((), (), (), last):
        world.advance(5.0)
        assert world.renew("p1").lost == lost


def test_without_an_idle_limit_idle_leases_are_lost_once_a_caller_lacks_memory(world: World) -> None:
    world.change_rules(idle_seconds=0.0)
    for name in ("a", "b"):
        world.ask("p1", name, None)
        world.proxies["p1"][name].in_flight = 0
    world.advance(4.0)
    assert world.renew("p1").lost == ()
    wait = world.busy("p2", "c", 0.0)
    assert wait <= RULES.lease_seconds / lease.RENEWALS_PER_LEASE + 1, "the next renewal takes them back"
    world.advance(4.0)
    assert world.renew("p1").lost == ("a", "b")
    assert world.residency.leases == 2, "and yet they hold until they have ended"
    world.release("p1", "a")
    assert isinstance(world.answer(world.ask("p2", "c", None)), lease.Granted)


def test_a_changed_model_drains_and_calls_in_flight_hold_it(world: World) -> None:
    world.ask("p1", "a", None)
    world.change("a", stamp="new")
    for _ in range(10):
        world.advance(5.0)
        assert world.renew("p1").lost == ("a",), "nothing new may begin"
        assert world.states["a"] == "draining", "but what is under way goes on"
    world.proxies["p1"]["a"].in_flight = 0
    world.renew("p1")
    busy = world.ask("p2", "a", 0.0)
    assert isinstance(busy, lease.Busy)
    assert busy.reason == "draining"
    world.advance(RULES.lease_seconds)
    assert world.states["a"] == "unloading"


def test_a_caller_that_does_not_wait_for_memory_is_refused_immediately(world: World) -> None:
    world.advance(5.0)
    step, answer = world.residency.acquire("c", "p1", None, world.now, room_seconds=0.0)
    assert isinstance(answer, lease.Busy)
    assert answer.reason == "no-room"
    assert step.commands == []
    world.advance(5.0)
    step, answer = world.residency.acquire("c", "p1", None, world.now, room_seconds=0.0)
    assert isinstance(answer, Ticket), "by then a model can be evicted"
    assert [type(command) for command in step.commands] == [Unload]


def test_a_release_that_is_late_ends_no_lease_that_was_granted_since(world: World) -> None:
    def release(serials: dict[str, int], incarnation: str = world.residency.incarnation) -> int:
        world.take(world.residency.release("p1", incarnation, ["a"], world.now, serials))
        return world.residency.leases

    first, second = world.ask("p1", "a", None), world.ask("p1", "a", None)
    assert isinstance(first, lease.Granted)
    assert isinstance(second, lease.Granted)
    assert 0 < first.serial < second.serial
    assert release({}, "long-ago") == 1
    assert release({"a": first.serial}) == 1
    assert release({"a": second.serial}) == 0
    assert isinstance(world.ask("p1", "a", None), lease.Granted)
    assert release({}) == 0, "who names none means whichever it is"
    world.residency.renew("p1", world.residency.incarnation, {"a": use(in_flight=1)}, world.now)
    assert release({"a": second.serial}) == 1, "granted again by a renewal"


def test_in_flight_of_an_earlier_incarnation_is_held_and_its_lease_is_lost(world: World) -> None:
    world.ask("p1", "a", None)
    world.restart_policy()
    step, renewed = world.residency.renew("p1", "start-0", {"a": use(in_flight=1), "b": use()}, world.now + 10)
    assert (renewed.lost, step.commands) == (("a", "b"), [])
    for model, holders in (("a", {"p1", "an earlier start"}), ("b", {"an earlier start"})):
        assert {held.holder for held in world.listed(model).leases} == holders


def test_uses_are_learned_from_renewals() -> None:
    world = started(specs({"a": 40}))
    world.answer(world.ask("p1", "a", None))
    candidate = world.residency._pool.models["a"].candidate
    began = world.now
    for requests in (6, 5, 5):  # The first of them was counted when it requested the lease.
        world.advance(10.0)
        world.take(world.residency.renew("p1", "start-0", {"a": use(in_flight=1, requests=requests)}, world.now)[0])
    assert candidate.gap_seconds == pytest.approx(2.0)
    world.take(world.residency.renew("p1", "start-0", {"a": use(idle=5.0)}, world.now)[0])
    assert candidate.last_use == began + 30.0, "never earlier than what was known"
