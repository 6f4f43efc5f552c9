"""No guardrail goes untested, unexplained or unasked."""

from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from policies.guardrails import BY_NAME
from policies.guardrails.rules import RULES
from policies.guardrails.settings import Kind, Severity

from . import test_guardrails_data
from .stacks import Case
from .test_guardrails_dangers import DANGERS

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("test_guardrails_*.py") if path != Path(__file__))
TABLES = [table for name in MODULES if hasattr(table := import_module(f"{__package__}.{name}"), "KEPT")]
OF_ITS_OWN = {test_guardrails_data.SHARED}  # Looks at several environments; its examples are OVERLAPPING and APART.


BROKEN = [
    Case(rule, edit, about, *said)
    for table in TABLES
    for (rule, about), rows in getattr(table, "BROKEN", {}).items()
    for edit, *said in rows
]
KEPT = [Case(rule, edit) for table in TABLES for rule, edits in table.KEPT.items() for edit in edits]


@pytest.mark.parametrize("case", BROKEN, ids=[f"{case.rule}-{number}" for number, case in enumerate(BROKEN)])
def test_a_guardrail_is_broken_by(case: Case) -> None:
    case.is_broken()


@pytest.mark.parametrize("case", KEPT, ids=[f"{case.rule}-{number}" for number, case in enumerate(KEPT)])
def test_a_guardrail_is_kept_by(case: Case) -> None:
    case.is_kept()


def test_every_guardrail_has_an_example_that_breaks_it_and_one_that_comes_near() -> None:
    assert set(BY_NAME) - {case.rule for case in BROKEN} - DANGERS.keys() == OF_ITS_OWN
    assert set(BY_NAME) - {case.rule for case in KEPT} == OF_ITS_OWN


def test_every_guardrail_says_in_a_sentence_what_it_wants_why_and_what_to_do() -> None:
    for rule in RULES:
        assert rule.title
        assert rule.why.endswith("."), rule.name
        assert rule.do.endswith("."), rule.name
        assert {rule.severity(kind) for kind in get_args(Kind)} <= {*get_args(Severity), None}
