"""No guardrail goes untested, unexplained or unasked."""

import inspect
from pathlib import Path
from types import ModuleType

from policies.guardrails import BY_NAME, KINDS, RULES, SEVERITIES, rules
from policies.guardrails import reference as page

from . import (
    test_guardrails_access,
    test_guardrails_data,
    test_guardrails_exposure,
    test_guardrails_gpu,
    test_guardrails_secrets,
    test_guardrails_workloads,
)

TABLES = (
    test_guardrails_access,
    test_guardrails_data,
    test_guardrails_exposure,
    test_guardrails_gpu,
    test_guardrails_secrets,
    test_guardrails_workloads,
)
OF_ITS_OWN = {test_guardrails_data.SHARED}
"""Looks at several environments; its examples are OVERLAPPING and APART."""


def test_every_guardrail_has_an_example_that_breaks_it_and_one_that_comes_near() -> None:
    broken = {case.rule for table in TABLES for case in table.BROKEN}
    kept = {case.rule for table in TABLES for case in table.KEPT}
    assert set(BY_NAME) - broken == OF_ITS_OWN
    assert set(BY_NAME) - kept == OF_ITS_OWN
    assert test_guardrails_data.OVERLAPPING
    assert test_guardrails_data.APART


def test_every_guardrail_is_asked_once() -> None:
    asked = [rule.function for rule in RULES]
    assert len(set(asked)) == len(asked)
    modules = [
        value for value in vars(rules).values() if isinstance(value, ModuleType) and "guardrails" in value.__name__
    ]
    assert modules
    for module in modules:
        for name, value in inspect.getmembers(module, inspect.isfunction):
            is_rule = value.__module__ == module.__name__ and [*inspect.signature(value).parameters] == ["environment"]
            if is_rule and inspect.isgeneratorfunction(value) and not name.startswith("_"):
                assert value in asked, f"{name} is never asked"


def test_every_guardrail_says_in_a_sentence_what_it_wants_why_and_what_to_do() -> None:
    for rule in RULES:
        for text in (rule.sentence, rule.why, rule.do):
            assert text.endswith((".", "….", "standards.")), rule.name
        assert rule.production in SEVERITIES
        assert all(rule.severity(kind) in (*SEVERITIES, None) for kind in KINDS)


def test_the_page_is_that_of_the_rules() -> None:
    assert not page.stale(), "run `make docs`"
    text = page.page()
    for rule in RULES:
        assert text.count(f"### {rule.name}\n") == 1
        assert f"| [{rule.name}](#{rule.name}) | {rule.production} |" in text


def test_the_page_is_stale_when_it_says_something_else(tmp_path: Path) -> None:
    assert page.stale(tmp_path)
    (tmp_path / page.PAGE).parent.mkdir()
    (tmp_path / page.PAGE).write_text(page.page())
    assert not page.stale(tmp_path)
    (tmp_path / page.PAGE).write_text(page.page() + "more")
    assert page.stale(tmp_path)


def test_the_page_says_which_commands_see_one_stack_only_and_what_make_makes_of_exit_codes() -> None:
    text = " ".join(page.page().split())
    _, _, section = text.partition(f"### {test_guardrails_data.SHARED} ")
    assert "they compare only the environments within that one stack" in section.partition("###")[0]
    assert "`make` itself ends with 2 whenever one of them fails" in text


def test_no_line_of_the_page_is_longer_than_its_tables_need() -> None:
    assert all(len(line) <= 120 or line.startswith("| ") for line in page.page().splitlines())
