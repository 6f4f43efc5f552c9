"""What one item of a definition may not say: every validator of the model, broken and kept."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import each, read_cases
from tests.stacks.definition.examples import (
    assert_refused,
    edited_at,
    own_rules,
    problems,
    sections,
)

CASES = read_cases(Path(__file__).with_name("validators.yaml"))


@pytest.mark.parametrize(("_", "case"), each("refused", CASES))
def test_what_a_validator_refuses_is_said_once_where_it_stands(_: str, case: dict[str, Any]) -> None:
    assert_refused(edited_at(case["change"]), case["at"], case["says"])


@pytest.mark.parametrize(("_", "change"), each("accepted", CASES))
def test_what_a_validator_accepts_is_let_through(_: str, change: dict[str, Any]) -> None:
    assert [each for each in problems(edited_at(change)) if each.severity == "error"] == []


def test_every_validator_of_the_model_is_broken_here() -> None:
    assert {rule for part in sections() for rule in own_rules(part)} <= CASES.keys()


@pytest.mark.parametrize(
    "argument", ["--model-contr=none", "--http-restrict=x", "--allow-htt=false", "--exit-timeout=1", "--http-p=1"]
)
def test_an_abbreviation_of_an_argument_that_tidegate_sets_is_refused_too(argument: str) -> None:
    """Triton reads its command line with getopt_long, which takes any beginning that fits one option only."""
    text = edited_at({"servers/main/triton": {"extraArguments": [argument]}})
    assert_refused(text, "»triton:", "Tidegate sets it itself")
