"""No rule goes untested."""

from typing import Any

import pytest

from stacks import rules
from stacks.rules import references
from tests.stacks import test_rules_capacity as capacity
from tests.stacks import test_rules_names as names
from tests.stacks import test_rules_promotion as promotion
from tests.stacks import test_rules_references as about_references
from tests.stacks import test_rules_safety as safety
from tests.stacks.definition.examples import BASE, Rule, assert_said, edited_at, problems, said_by

TABLES: tuple[Any, ...] = (capacity, names, promotion, about_references, safety)
ABOUT_THE_LOCK = {references.the_lock_holds_digests_of_these_images_only, references.images_have_a_digest}
EVERY_RULE = {*rules.HEADER_RULES, *rules.STACK_RULES, *rules.DEFINITION_RULES}
BROKEN = [(rule, *row) for table in TABLES for rule, rows in table.BROKEN.items() for row in rows]
KEPT = [(rule, edits) for table in TABLES for rule, rows in table.KEPT.items() for edits in rows]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case[0].__name__}-{case[3][:40]}")
def test_a_broken_rule_is_said_where_it_is_broken(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, edits, at, what, *rest = case
    severity, number = rest[0] if rest else "error", rest[1] if len(rest) > 1 else 1
    text = edited_at(edits)
    found = said_by(rule, text, monkeypatch)
    assert_said(found, text, at, what, severity=severity, number=number)
    assert set(found) <= set(problems(text)), "it is said among all the rules too"


@pytest.mark.parametrize("case", KEPT, ids=lambda case: f"{case[0].__name__}-{' '.join(case[1])[:40]}")
def test_what_keeps_a_rule_is_let_through(case: tuple[Rule, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rule, edits = case
    assert not said_by(rule, edited_at(edits), monkeypatch)


def test_every_rule_has_a_definition_that_breaks_it() -> None:
    """What keeps the rules is shown by the base definition, and by any valid one of `tests/strategies`."""
    assert {case[0] for case in BROKEN} == EVERY_RULE - ABOUT_THE_LOCK


def test_a_rule_says_in_a_sentence_what_it_is_for() -> None:
    for rule in EVERY_RULE:
        assert (rule.__doc__ or "").strip().endswith("."), rule


def test_nothing_is_said_about_the_base_definition() -> None:
    assert problems(BASE) == []
