"""The states and transitions, and what docs/eviction.md and INTERNALS.md have of them."""

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
INTERNALS = (ROOT / "policies/eviction/INTERNALS.md").read_text("utf-8")


def test_a_cause_leads_from_a_state_to_one_other() -> None:
    assert max(Counter((before, cause) for before, cause, _ in TRANSITIONS).values()) == 1
    assert all(before is not after for before, _, after in TRANSITIONS)
    assert {cause for _, cause, _ in TRANSITIONS} == set(get_args(Cause))


def test_only_a_load_takes_memory_and_only_freed_memory_gives_it_back() -> None:
    taken = {(cause, to) for of, cause, to in TRANSITIONS if of not in HOLDS_ROOM and to in HOLDS_ROOM}
    assert taken == {("begun", State.LOADING), ("found", State.RESIDENT)}
    given = {cause for of, cause, to in TRANSITIONS if of in HOLDS_ROOM and to not in HOLDS_ROOM}
    assert given == {"freed", "lost"}


def test_the_page_has_every_state() -> None:
    assert re.findall(r"^\| `([a-z]+)` \| [^|]+ \|$", PAGE.partition("\n### The states of a model\n")[2], re.MULTILINE)[
        : len(State)
    ] == list(State)


def test_the_page_has_every_policy() -> None:
    for policy in BUILT_IN.values():
        assert f"| `{policy.name}` | {policy.sentence} |" in PAGE


def test_the_page_has_the_defaults() -> None:
    rules = PoolSettings(0, BUILT_IN["lru-idle"], 0.0, 0.0, 0.0)
    for words in (
        f"{rules.tolerance_bytes >> 20} MiB (`tolerance_bytes`)",
        f"{rules.alone_seconds:.0f} s (`alone_seconds`)",
        f"after {rules.freeing_seconds:.0f} s (`freeing_seconds`)",
        f"(*k* = {rules.residency_factor:.0f}, `residency_factor`, at most {rules.residency_most_seconds:.0f} s)",
        f"more than {rules.overdue_seconds:.0f} s,",
        f"never more than {rules.retry_most_seconds:.0f} s (`retry_most_seconds`)",
        f"for {rules.failure_backoff_seconds:.0f} s, then {2 * rules.failure_backoff_seconds:.0f}",
        f"within {rules.failure_memory_seconds / 60:.0f} minutes",
    ):
        assert words in " ".join(INTERNALS.split()), words
    assert (rules.failures_most, rules.unload_tries, rules.loads_at_once) == (3, 3, 4)
    assert PoolSettings(1000, BUILT_IN["lru-idle"], 0.0, 0.0, 0.0).leak_budget == 100
