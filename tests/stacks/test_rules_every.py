"""Every rule over several items of a definition, broken and kept: `rules/` holds the cases of each module of rules."""

from pathlib import Path
from typing import Any

import pytest

from stacks import rules
from tests.cases import each, read_cases
from tests.stacks.definition.examples import BASE, assert_said, edited_at, problems, said_by

ABOUT_THE_LOCK = {"the_lock_holds_digests_of_these_images_only", "images_have_a_digest"}
RULES = {rule.__name__: rule for rule in (*rules.HEADER_RULES, *rules.STACK_RULES, *rules.DEFINITION_RULES)}
CASES = {
    rule: cases
    for file in sorted(Path(__file__).with_name("rules").glob("*.yaml"))
    for rule, cases in read_cases(file).items()
}


@pytest.mark.parametrize(("rule", "case"), each("refused", CASES))
def test_a_broken_rule_is_said_where_it_is_broken(
    rule: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = edited_at(case["change"])
    found = said_by(RULES[rule], text, monkeypatch)
    expected = {"severity": case.get("severity", "error"), "number": case.get("problems", 1)}
    assert_said(found, text, case["at"], case["says"], **expected)
    assert set(found) <= set(problems(text)), "it is said among all the rules too"


@pytest.mark.parametrize(("rule", "change"), each("accepted", CASES))
def test_what_keeps_a_rule_is_let_through(rule: str, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not said_by(RULES[rule], edited_at(change), monkeypatch)


def test_every_rule_has_a_definition_that_breaks_it() -> None:
    """What keeps the rules is shown by the base definition, and by any valid one of `tests/strategies`."""
    assert {rule for rule, cases in CASES.items() if cases["refused"]} == RULES.keys() - ABOUT_THE_LOCK


def test_a_rule_says_in_a_sentence_what_it_is_for() -> None:
    for rule in RULES.values():
        assert (rule.__doc__ or "").strip().endswith("."), rule


def test_nothing_is_said_about_the_base_definition() -> None:
    assert problems(BASE) == []
