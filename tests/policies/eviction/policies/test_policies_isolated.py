"""Policies of somebody else's, each in a process of its own: they hold nobody up, and spoil nothing."""

import copy
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tidegate_eviction.policies import isolated, registry
from tidegate_eviction.policies.policy import Candidate, Policy, PolicyError
from tidegate_eviction.policies.registry import BUILT_IN

from tests.counts import examples

from . import hostile
from .test_policies import NOW, candidate

ANSWER_SECONDS, REAP_SECONDS = isolated.ANSWER_SECONDS, isolated.REAP_SECONDS
MARGIN_SECONDS = 20.0  # What the busiest machine adds to a quarter of a second; who hangs does so for a minute.
Find = Callable[..., Policy]


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    hostile.install(tmp_path, monkeypatch, hostile="policy", picky="picky", mine="unnamed")
    return isolated.find


@pytest.fixture
def impatient(find: Find, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 – it comes after what is patient
    """Answers have the time that they have in a pod."""
    monkeypatch.setattr(isolated, "ANSWER_SECONDS", ANSWER_SECONDS)


class Clock:
    """The asker's, which goes on when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(isolated, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def names(policy: Policy, *told: str) -> list[str]:
    return [each.name for each in policy.choose([candidate(name, idle=-n) for n, name in enumerate(told)], 1, NOW)]


def test_it_chooses_as_it_would_here_and_by_its_settings(find: Find) -> None:
    policy = find("picky", {"first": "2"})
    assert (policy.name, policy.sentence) == ("picky", "2 0.5 False")
    assert names(policy, "a", "b", "c") == ["a", "b"]
    assert find("picky", {"first": "2"}) is policy, "one process, however often it is asked for"
    assert find("lru") is BUILT_IN["lru"]


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("fifo", {}, 'there is no policy "fifo": built in are break-even'),
        ("mine", {}, 'policy "mine": tests.policies.eviction.policies.hostile:unnamed is no Policy with this name'),
        ("picky", {"first": "two"}, 'policy "picky": setting first: Input should be a valid integer'),
        ("lru", {"first": "2"}, 'policy "lru" takes no settings'),
    ],
)
def test_one_that_cannot_be_used_is_told_in_one_sentence(
    find: Find, name: str, settings: dict[str, str], says: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        find(name, settings)


@pytest.mark.parametrize("source", ["import time; time.sleep(60)", "import os; os._exit(3)", "import sys; sys.exit(3)"])
def test_one_that_is_never_imported_is_told_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    hostile.install(tmp_path, monkeypatch)
    (tmp_path / "brought.py").write_text(source, "utf-8")
    (tmp_path / "bring-1.0.dist-info" / "entry_points.txt").write_text(f"[{registry.GROUP}]\nmine = brought:policy")
    monkeypatch.setattr(isolated, "START_SECONDS", 1.0)
    begun = time.monotonic()
    with pytest.raises(ValueError, match=r"no answer within 1 s|its process ended|cannot be imported from brought:"):
        isolated.find("mine")
    assert time.monotonic() - begun < 1 + MARGIN_SECONDS


def test_one_that_fails_rests_for_twice_as_long_each_time_and_the_least_recently_used_go_meanwhile(
    find: Find, clock: Clock
) -> None:
    policy = find("hostile")
    for rest in (2.5, 5.0):
        with pytest.raises(PolicyError, match=rf"^KeyError: 'no such model'; it is asked again in {rest:g} s$"):
            names(policy, "raises", "a")
        for seconds in (0.0, rest - 0.1):
            clock.now += seconds
            assert names(policy, "last", "a") == ["last"], "the least recently used"
        clock.now += 0.2
    assert names(policy, "last", "a") == ["a"], "it is asked again"
    with pytest.raises(PolicyError, match=r"asked again in 2\.5 s"):
        names(policy, "raises", "a")


def test_one_that_is_slow_gets_no_more_than_its_share_of_the_time(
    find: Find, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, slow = isolated._receive, isolated.ANSWER_SECONDS / 12

    def slowly(*said: Any) -> bytes:
        clock.now += slow
        return answered(*said)

    policy = find("hostile")
    monkeypatch.setattr(isolated, "_receive", slowly)
    with pytest.raises(PolicyError, match=r"^its answers take more than 10% of the time; it is asked again in 2\.5 s$"):
        all(names(policy, "all") for _ in range(15))
    asked = clock.now
    for _ in range(1000):
        names(policy, "all")
    assert clock.now == asked, "it rests"


def test_it_ends_with_its_asker_however_busy_it_is(find: Find) -> None:
    child = hostile.child_of(find("hostile"))
    isolated._started.cache_clear()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.usefixtures("impatient")
def test_one_that_cannot_be_ended_at_once_is_left_behind(find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that waits for a volume that hangs: a signal reaches it when the volume does."""
    monkeypatch.setattr(isolated, "REST_SECONDS", 0.0)
    policy = find("hostile")
    late, begun = hostile.child_of(policy), time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr("subprocess.Popen.kill", lambda _process: None)
        patch.setattr(isolated, "REAP_SECONDS", REAP_SECONDS)
        with pytest.raises(PolicyError, match="no answer within"):
            names(policy, "hangs", "a")
    assert time.monotonic() - begun < isolated.ANSWER_SECONDS + MARGIN_SECONDS
    assert hostile.child_of(policy) != late
    assert [child.pid for child in isolated._late] == [late]
    os.kill(late, signal.SIGKILL)
    while late in [child.pid for child in isolated._late]:
        with suppress(PolicyError):
            names(policy, "ends", "a")
        time.sleep(0.05)


class Asker(RuleBasedStateMachine):
    """Asks a policy that does whatever it likes, which never rests here."""

    policy: Policy

    def __init__(self) -> None:
        super().__init__()
        self.slowest, self.said = 0.0, list[str]()

    @rule(how=st.sampled_from([*hostile.WELL, *hostile.BADLY, *hostile.ISOLATED]), more=st.integers(0, 20))
    def ask(self, how: str, more: int) -> None:
        """Ask for room; an answer is of what it was given, a failure is told, and nothing has changed."""
        given = [candidate(how), *(candidate(f"m{number}", size=number + 1) for number in range(more))]
        before, begun = copy.deepcopy(given), time.monotonic()
        try:
            chosen = [*self.policy.choose(given, 5, NOW)]
        except PolicyError as error:
            self.said.append(str(error))
        else:
            assert {id(each) for each in chosen} <= {id(each) for each in given}
        self.slowest = max(self.slowest, time.monotonic() - begun)
        assert given == before

    @rule()
    def goes_well_again(self) -> None:
        """However it went before: one that answers well is heard, as soon as it has started anew."""
        given = [candidate("last", size=3, idle=9), candidate("b", size=3, idle=1)]
        end = time.monotonic() + hostile.PATIENT_SECONDS
        while time.monotonic() < end:
            with suppress(PolicyError):
                if [each.name for each in self.policy.choose(given, 3, NOW)] == ["b"]:
                    return
            time.sleep(0.05)
        raise AssertionError("it never answers again")

    @invariant()
    def nobody_waits_for_long_and_failures_are_told(self) -> None:
        """Whatever it does."""
        assert all(re.fullmatch(r".+; it is asked again in 0 s", each) for each in self.said)
        assert self.slowest < isolated.ANSWER_SECONDS + MARGIN_SECONDS


@pytest.mark.usefixtures("impatient")
def test_whatever_it_does_nobody_waits_for_long_and_it_is_heard_when_it_does_well(
    find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "REST_SECONDS", 0.0)
    Asker.policy = find("hostile")
    settings = hypothesis.settings(
        parent=examples(24), stateful_step_count=12, suppress_health_check=list(hypothesis.HealthCheck)
    )
    run_state_machine_as_test(Asker, settings=settings)


def test_candidates_are_asked_of_in_time_however_many_there_are(find: Find) -> None:
    """A thousand models that may go are more than a slice has. It is the time of the processor that counts."""
    policy = find("picky")
    given = [Candidate(f"m{number}", 1, 0.0, 0.0, 1.0, 0.0) for number in range(1000)]
    begun = time.process_time() + worked(hostile.child_of(policy))
    assert policy.choose(given, 5, NOW) == given[:1]
    assert time.process_time() + worked(hostile.child_of(policy)) - begun < ANSWER_SECONDS


def worked(process: int) -> float:
    """Return how many seconds of the processor a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
