"""When a caller comes again, and when it stops asking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.calling import retries as retries_module
from tidegate.calling.retries import CircuitBreaker, Deadline
from tidegate.errors import UnreachableError


class Clock:
    """Time that goes on when it is slept through, or told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(retries_module, "time", made)
    return made


def is_open(breaker: CircuitBreaker) -> bool:
    try:
        breaker.check("here")
    except UnreachableError:
        return True
    return False


def opened(times: int = 3) -> CircuitBreaker:
    breaker = CircuitBreaker(failures=times, seconds=1, longest=4)
    for _ in range(times):
        breaker.check("here")
        breaker.failed()
    return breaker


@given(st.floats(0, 30), st.floats(0.01, 60))
def test_what_the_proxy_said_is_never_undercut_and_the_time_never_passed(retry_after: float, seconds: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(retries_module, "time", clock)
        waited = Deadline(seconds).wait(retry_after)
        passed = clock.now - 1000
    if waited:
        assert retry_after - 1e-9 <= passed <= seconds + 1e-9
    else:
        assert passed == 0
        assert retry_after >= seconds - 1e-9


def test_those_who_were_sent_away_together_do_not_come_back_together(clock: Clock) -> None:
    waits = set()
    for _ in range(20):
        before = clock.now
        assert Deadline(60).wait(2)
        waits.add(round(clock.now - before, 4))
    assert len(waits) > 10


def test_without_a_word_of_the_proxys_pauses_grow_up_to_two_seconds(clock: Clock) -> None:
    until, pauses = Deadline(1000), []
    for _ in range(10):
        before = clock.now
        assert until.wait()
        pauses.append(clock.now - before)
    assert 0.05 <= pauses[0] <= 0.1
    assert all(1 <= pause <= 2 for pause in pauses[6:])


def test_it_opens_after_failures_that_follow_each_other(clock: Clock) -> None:
    breaker = CircuitBreaker(failures=3)
    for _ in range(5):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()
    assert not is_open(breaker)
    for _ in range(3):
        breaker.failed()
    assert is_open(breaker)
    clock.now += 60  # a clock that stands still would never let anybody through
    assert not is_open(breaker)


def test_who_is_not_let_through_is_told_when_to_try_again(clock: Clock) -> None:
    breaker = opened()
    clock.now += 0.6
    with pytest.raises(UnreachableError, match=r"3 calls failed(.|\n)*0\.4 s"):
        breaker.check("here")


def test_one_may_try_and_its_success_closes_it_for_everybody(clock: Clock) -> None:
    breaker = opened()
    clock.now += 1
    assert not is_open(breaker)
    assert is_open(breaker)
    breaker.succeeded()
    assert not is_open(breaker)


def test_a_trial_that_fails_keeps_it_open_for_longer_and_longer(clock: Clock) -> None:
    breaker = opened()
    for seconds in (1, 2, 4, 4):
        clock.now += seconds - 0.1
        assert is_open(breaker)
        clock.now += 0.1
        assert not is_open(breaker)
        breaker.failed(trial=True)
    clock.now += 4
    assert not is_open(breaker)
    breaker.succeeded()
    for _ in range(3):
        breaker.failed()
    clock.now += 1
    assert not is_open(breaker)


def test_a_trial_that_told_nothing_leaves_room_for_the_next(clock: Clock) -> None:
    breaker = opened()
    clock.now += 1
    assert not is_open(breaker)
    breaker.undecided(trial=True)
    assert not is_open(breaker)


def test_calls_from_before_do_not_end_a_trial(clock: Clock) -> None:
    breaker = opened()
    clock.now += 1
    assert breaker.check("here") is True
    breaker.failed()
    breaker.undecided()
    clock.now += 0.1
    assert is_open(breaker)  # the trial is still under way
    breaker.failed(trial=True)
    clock.now += 2.1  # twice the first second, and not four times
    assert not is_open(breaker)
