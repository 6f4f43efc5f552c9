import asyncio
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tidegate_proxy.pools import RetryBudget, ask
from tidegate_proxy.problems import Problem, ProblemType
from tidegate_proxy.settings import Tunables
from tidegate_proxy.upstream.breaker import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, SILENT, Breaker, Trial

from ..http.running_proxy import RIG, RunningProxy, request, served, until
from ..http.upstream import answering, hang

pytestmark = pytest.mark.anyio


@pytest.fixture
def tunables() -> Tunables:
    return replace(RIG, check_seconds=60)  # Only calls open and close breakers.


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.failed(now)
    return breaker


def test_each_trial_that_fails_doubles_the_pause_up_to_the_longest() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(8):
        pauses.append(breaker.opens_in(now))
        now += pauses[-1]
        breaker.failed(now, breaker.claim(now))
    assert pauses == [min(LONGEST_PAUSE, FIRST_PAUSE * 2**number) for number in range(8)]


def test_two_health_checks_without_an_answer_open_it_unless_a_call_was_answered_in_between() -> None:
    breaker = Breaker()
    breaker.unanswered(0.0, "there is no answer")
    breaker.succeeded()
    breaker.unanswered(1.0, "there is no answer")
    assert (breaker.state(1.0), breaker.is_unresponsive()) == ("closed", False)
    breaker.unanswered(1.9, "there is no answer")
    assert (breaker.state(1.9), breaker.is_unresponsive(), breaker.why) == ("open", True, "there is no answer")


def test_a_silent_replica_is_tried_by_no_call_and_is_back_with_the_first_health_check_that_is_answered() -> None:
    breaker = opened()
    trial = breaker.claim(FIRST_PAUSE)
    for _ in range(SILENT):
        breaker.unanswered(FIRST_PAUSE, "there is no answer")
    breaker.succeeded(trial)  # an earlier one
    assert not breaker.allows(1e6)
    breaker.answered(1e6)
    assert (breaker.state(1e6), breaker.failures, breaker.opens_in(1e6)) == ("closed", 0, 0.0)


def test_the_breaker_of_a_live_replica_that_fails_calls_closes_on_probation_without_calls() -> None:
    breaker = opened()
    for now in (FIRST_PAUSE / 2, FIRST_PAUSE, LONGEST_PAUSE):
        breaker.answered(now)
        assert breaker.state(now) != "closed"
    now = FIRST_PAUSE + LONGEST_PAUSE
    breaker.answered(now)
    assert breaker.state(now) == "closed"
    breaker.failed(now)
    assert breaker.opens_in(now) == 2 * FIRST_PAUSE, "one failure was enough, and its pause is longer"
    trial = breaker.claim(900.0)
    breaker.answered(900.0)
    assert (trial is not None, breaker.state(900.0)) == (True, "half-open"), "a call is already the trial"


def test_health_checks_that_are_answered_excuse_no_call_that_fails() -> None:
    breaker = Breaker()
    for number in range(FAILURES):
        breaker.answered(float(number))
        breaker.failed(float(number))
    assert breaker.state(float(FAILURES)) == "half-open"
    few = Breaker()
    few.failed(0.0)
    few.unanswered(0.0, "there is no answer")
    few.answered(0.0)
    assert few.failures == 1


class Requests(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.now = 0.0
        self.ended: list[Trial] = []  # Earlier trials.
        self.under_way: list[Trial | None] = []

    @rule(seconds=st.floats(0, 40))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def one_begins(self) -> None:
        if self.breaker.allows(self.now):
            half_open = self.breaker.state(self.now) == "half-open"
            trial = self.breaker.claim(self.now)
            assert (trial is not None) == half_open
            self.under_way.append(trial)

    @rule(which=st.integers(0, 50), how=st.sampled_from(["answered", "failed", "left"]))
    def one_ends(self, which: int, how: str) -> None:
        if not self.under_way:
            return
        trial = self.under_way.pop(which % len(self.under_way))
        before = self.breaker.state(self.now)
        if how == "answered":
            self.breaker.succeeded(trial)
        elif how == "failed":
            self.breaker.failed(self.now, trial)
        if trial is not None:
            trial.given_up()  # unless its outcome was counted
            self.ended.append(trial)
        elif before != "closed":
            assert self.breaker.state(self.now) == before, "a request other than the trial changes nothing"

    @rule(answered=st.booleans())
    def a_health_check_ends(self, answered: bool) -> None:
        if answered:
            self.breaker.answered(self.now)
            assert not self.breaker.is_unresponsive()
        else:
            self.breaker.unanswered(self.now, "there is no answer")

    @rule()
    def a_trial_of_before_ends_once_more(self) -> None:
        before = self.breaker.state(self.now), self.breaker.allows(self.now)
        if before[0] != "closed":
            for trial in self.ended:
                self.breaker.succeeded(trial)
                self.breaker.failed(self.now, trial)
                trial.given_up()
        assert before == (self.breaker.state(self.now), self.breaker.allows(self.now))

    @invariant()
    def at_most_one_trial_is_under_way(self) -> None:
        trials = sum(trial is not None for trial in self.under_way)
        assert trials <= 1
        assert not (trials and self.breaker.allows(self.now) and self.breaker.state(self.now) != "closed")
        assert self.breaker.opens_in(self.now) <= LONGEST_PAUSE

    @invariant()
    def no_request_is_refused_for_ever(self) -> None:
        if all(trial is None for trial in self.under_way) and not self.breaker.is_unresponsive():
            assert self.breaker.allows(self.now + LONGEST_PAUSE)


Requests.TestCase.settings = settings(deadline=None)
TestRequests = Requests.TestCase


@pytest.mark.parametrize(
    ("own", "kind", "failures"), [(True, ProblemType.UPSTREAM, 1), (False, ProblemType.DEADLINE, 0)]
)
async def test_a_timeout_is_the_replicas_failure_unless_the_callers_deadline_was_shorter(
    here: RunningProxy, own: bool, kind: ProblemType, failures: int
) -> None:
    here.replica.act = hang
    with pytest.raises(Problem) as caught:
        await ask(here.pool, b"/v2", 0.1, own_bound=own)
    assert caught.value.type is kind
    assert here.pool.replicas[0].breaker.failures == failures


def open_breaker(here: RunningProxy) -> None:
    for _ in range(FAILURES):
        here.pool.replicas[0].breaker.failed(monotonic() - 2)  # later a health check would close it


async def test_a_replica_that_may_have_recovered_gets_one_of_many_requests(here: RunningProxy) -> None:
    here.replica.act = answering(seconds=0.3)
    open_breaker(here)
    statuses = [each.status for each in await asyncio.gather(*(here.ask() for _ in range(30)))]
    assert sorted(statuses) == [200] + [503] * 29
    assert len(here.replica.requests) == 1
    assert here.pool.replicas[0].breaker.state(monotonic()) == "closed"


async def test_a_trial_whose_caller_leaves_or_waits_no_longer_is_the_next_callers(here: RunningProxy) -> None:
    here.replica.act = hang
    open_breaker(here)
    breaker = here.pool.replicas[0].breaker
    async with here.caller() as caller:
        await caller.send(request())
        await until(lambda: here.replica.requests)
        assert not breaker.allows(monotonic())
    await until(lambda: breaker.allows(monotonic()))
    assert (await here.ask(request(Request_Timeout="0.2"))).status == 504
    assert breaker.allows(monotonic())
    here.replica.act = None
    assert (await here.ask()).status == 200
    assert breaker.state(monotonic()) == "closed"


async def test_a_hung_replica_is_left_alone_unless_callers_are_merely_impatient(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, hang, request_timeout_seconds=1) as here:
        breaker = here.pool.replicas[0].breaker
        hurried = await asyncio.gather(*(here.ask(request(Request_Timeout="0.2")) for _ in range(2 * FAILURES)))
        assert {each.status for each in hurried} == {504}
        assert breaker.state(monotonic()) == "closed"
        patient = await asyncio.gather(*(here.ask() for _ in range(FAILURES)))
        assert {each.status for each in patient} == {504}
        assert breaker.state(monotonic()) == "open"
        assert (await here.ask()).status == 503
        assert here.pool.replicas[0].in_flight == 0


def test_retries_are_at_most_a_tenth_of_the_requests_and_one_a_second_beyond_the_first_ten() -> None:
    budget, taken = RetryBudget(0.0), 0
    for number in range(1000):
        budget.sent += 1
        taken += budget.take(number / 100)
    assert 100 <= taken <= 10 + 100 + 10
