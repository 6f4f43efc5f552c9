"""The states, each with its sentence, each to be reached and to be left."""

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import get_args

from tidegate_contracts.lease import State
from tidegate_eviction.core.messages import PoolSettings
from tidegate_eviction.core.states import HOLDS_ROOM, TRANSITIONS, Cause
from tidegate_eviction.policies.registry import BUILT_IN

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs/eviction.md").read_text("utf-8")


def test_a_cause_leads_from_a_state_to_one_other() -> None:
    assert max(Counter((step.before, step.cause) for step in TRANSITIONS).values()) == 1
    assert all(step.before is not step.after for step in TRANSITIONS)
    assert {step.cause for step in TRANSITIONS} == set(get_args(Cause))


def test_room_is_taken_by_a_load_and_given_back_by_memory_alone() -> None:
    taken = {
        (step.cause, step.after) for step in TRANSITIONS if step.before not in HOLDS_ROOM and step.after in HOLDS_ROOM
    }
    assert taken == {("begun", State.LOADING), ("found", State.RESIDENT)}
    given = {step.cause for step in TRANSITIONS if step.before in HOLDS_ROOM and step.after not in HOLDS_ROOM}
    assert given == {"freed", "lost"}


def test_the_page_has_every_state_and_every_transition_as_they_are() -> None:
    sentences = re.findall(r'    [A-Z]+ = "([a-z]+)"\n    """(.+)"""', inspect.getsource(State))
    assert [state for state, _ in sentences] == list(State)
    for state, sentence in sentences:
        assert f"| `{state}` | {sentence} |" in PAGE
    for step in TRANSITIONS:
        assert f"| `{step.before}` | {step.cause} | `{step.after}` | {step.sentence} |" in PAGE
    rows = [line for line in PAGE.splitlines() if line.count("|") == 5 and line.startswith("| `")]
    assert len([row for row in rows if row.split("`")[1] in set(State)]) == len(TRANSITIONS)


def test_the_page_has_every_policy_as_it_is() -> None:
    for policy in BUILT_IN.values():
        assert f"| `{policy.name}` | {policy.sentence} |" in PAGE


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"\(\.\./(tests/[\w/]+\.py)\) `(test_\w+)`", PAGE)
    assert len(named) > 30
    for path, test in named:
        assert re.search(rf"def {test}\(", (ROOT / path).read_text("utf-8")), f"{path} has no {test}"
    assert PAGE.count("](../tests/") == len(named)


def test_the_page_says_the_defaults() -> None:
    rules = PoolSettings(0, BUILT_IN["lru-idle"], 0.0, 0.0, 0.0)
    for words in (
        f"all but {rules.tolerance_bytes >> 20} MiB (`tolerance_bytes`)",
        f"than {rules.alone_seconds:.0f} s (`alone_seconds`)",
        f"after {rules.freeing_seconds:.0f} s (`freeing_seconds`)",
        f"(*k* = {rules.residency_factor:.0f}, `residency_factor`; {rules.residency_most_seconds:.0f} s at",
        f"more than {rules.overdue_seconds:.0f} s,",
        f"never more than {rules.retry_most_seconds:.0f} s (`retry_most_seconds`)",
        f"for {rules.failure_backoff_seconds:.0f} s, then {2 * rules.failure_backoff_seconds:.0f}",
        f"within {rules.failure_memory_seconds / 60:.0f} minutes",
    ):
        assert words in " ".join(PAGE.split()), words
    assert (rules.failures_most, rules.unload_tries, rules.loads_at_once) == (3, 3, 4)
    assert PoolSettings(1000, BUILT_IN["lru-idle"], 0.0, 0.0, 0.0).leak_budget == 100
