"""Every rule over several items of a definition, broken and kept: `rules/` holds the cases of each module of rules."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from policies.guardrails import rules as guardrails
from policies.guardrails.objects import Environment
from policies.guardrails.rule import Breach, Rule
from stacks import rules
from stacks.definition import Header
from stacks.problems import Problem
from stacks.rules.rule import stack_rule
from stacks.stack import Definition, Stack
from tests.cases import each, read_cases
from tests.stacks.definition.examples import BASE, assert_found, edited_at, found_by, problems

RULES = {rule.function.__name__: rule for rule in (*rules.HEADER_RULES, *rules.STACK_RULES, *rules.DEFINITION_RULES)}
CASES = {
    rule: cases
    for file in sorted(Path(__file__).with_name("rules").glob("*.yaml"))
    for rule, cases in read_cases(file).items()
}


@pytest.mark.parametrize(("rule", "case"), each("refused", CASES))
def test_a_broken_rule_is_reported_with_its_line(
    rule: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = edited_at(case["change"])
    found = found_by(RULES[rule], text, monkeypatch)
    expected = {"severity": case.get("severity", "error"), "number": case.get("problems", 1)}
    assert_found(found, text, case["at"], case["says"], **expected)
    assert {problem.rule for problem in found} == {RULES[rule].name}
    assert set(found) <= set(problems(text)), "all rules together report it too"


@pytest.mark.parametrize(("rule", "change"), each("accepted", CASES))
def test_a_definition_that_follows_a_rule_passes(
    rule: str, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not found_by(RULES[rule], edited_at(change), monkeypatch)


def test_every_rule_has_a_definition_that_breaks_it() -> None:
    """The base definition and all definitions of `tests/strategies` keep the rules."""
    assert {rule for rule, cases in CASES.items() if cases["refused"]} == RULES.keys()


def test_a_rule_has_a_title_and_its_reason_is_a_sentence() -> None:
    for rule in RULES.values():
        assert rule.title, rule.name
        assert not rule.title.endswith("."), rule.name
        assert not rule.why or rule.why.endswith("."), rule.name


@pytest.mark.parametrize(("package", "subjects"), [(rules, (Header, Stack, Definition)), (guardrails, (Environment,))])
def test_every_function_that_looks_like_a_rule_is_registered(package: ModuleType, subjects: tuple[type, ...]) -> None:
    """A rule whose decorator, or whose module's import, is forgotten would never run."""
    files = {path.stem for path in Path(package.__file__ or "").parent.glob("*.py")} - {"__init__", "rule"}
    registered = [rule for value in vars(package).values() if isinstance(value, tuple) for rule in value]
    for module in [import_module(f"{package.__name__}.{file}") for file in files]:
        for name, value in vars(module).items():
            assert not isinstance(value, Rule) or value in registered, name
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
                first, *_, returned = inspect.get_annotations(value, eval_str=True).values()
                assert not (first in subjects and returned in (Iterator[Problem], Iterator[Breach])), name


def test_two_rules_about_one_subject_have_different_names() -> None:
    def kept_twice(_: Stack) -> Iterator[Problem]:
        yield from ()

    stack_rule("One name")(kept_twice)
    with pytest.raises(ValueError, match="two rules about Stack are named kept-twice"):
        stack_rule("One name")(kept_twice)


def test_the_base_definition_has_no_findings() -> None:
    assert problems(BASE) == []
