"""No rule goes untested."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stacks import rules
from stacks.rules import references
from tests.stacks import (
    test_rules_capacity,
    test_rules_names,
    test_rules_promotion,
    test_rules_references,
    test_rules_safety,
)
from tests.stacks.definition.examples import BASE, Broken, Kept, check_broken, check_kept, problems

TABLES: tuple[Any, ...] = (
    test_rules_capacity,
    test_rules_names,
    test_rules_promotion,
    test_rules_references,
    test_rules_safety,
)
OF_THEIR_OWN = {references.the_lock_holds_digests_of_these_images_only, references.images_have_a_digest}
EVERY_RULE = {*rules.HEADER_RULES, *rules.STACK_RULES, *rules.DEFINITION_RULES}


BROKEN = [Broken(rule, *row) for table in TABLES for rule, rows in table.BROKEN.items() for row in rows]
KEPT = [Kept(rule, edits) for table in TABLES for rule, rows in table.KEPT.items() for edits in rows]


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_a_broken_rule_is_said_where_it_is_broken(case: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    check_broken(case, monkeypatch)


@pytest.mark.parametrize("case", KEPT, ids=str)
def test_what_keeps_a_rule_is_let_through(case: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kept(case, monkeypatch)


def test_every_rule_has_a_definition_that_breaks_it_and_one_that_comes_near() -> None:
    assert {case.rule for case in BROKEN} == {case.rule for case in KEPT} == EVERY_RULE - OF_THEIR_OWN


def test_every_rule_is_in_force_once() -> None:
    counted = Counter([*rules.HEADER_RULES, *rules.STACK_RULES, *rules.DEFINITION_RULES])
    assert set(counted.values()) == {1}
    for module in rules.MODULES:
        for name, value in vars(module).items():
            said_here = getattr(value, "__module__", None) == module.__name__ and callable(value)
            if said_here and not name.startswith("_") and name not in ("suggestion", "unknown"):
                assert value in counted, f"{name} is never asked"


def test_a_rule_says_in_a_sentence_what_it_is_for() -> None:
    for rule in EVERY_RULE:
        assert rule.__doc__, rule
        assert rule.__doc__.strip().endswith("."), rule


def test_nothing_is_said_about_the_base_definition() -> None:
    assert problems(BASE) == []
