"""Every alert has its runbook: what it means, three commands that exist, and what it usually was."""

import re
from pathlib import Path

import pytest
import typer
import yaml
from tidegate.cli.app import app

from components.dashboards import DASHBOARDS
from stacks.definition.environment import RUNBOOKS
from tests.components.alerts import EXPECTED
from tests.components.dashboards import QUESTIONS

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = dict(
    re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", (ROOT / "docs/runbooks.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
)
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def alerts() -> dict[str, dict[str, str]]:
    rules = next(each for each in yaml.safe_load_all(EXPECTED.read_text("utf-8")) if each["kind"] == "PrometheusRule")
    found = [rule for group in rules["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    return {rule["alert"]: rule["annotations"] for rule in found}


def test_each_question_of_who_is_on_call_leads_to_its_panel() -> None:
    page = (ROOT / "docs/metrics.md").read_text("utf-8")
    titles = {each.name: each.title for each in DASHBOARDS}
    for question, (dashboard, panel) in QUESTIONS.items():
        assert f"| {question}? | {titles[dashboard]} | {panel} |" in page


def test_each_alert_leads_to_a_section_and_each_section_is_of_an_alert() -> None:
    assert {*SECTIONS} == {*alerts()}
    for name, annotations in alerts().items():
        assert annotations["runbook_url"] == f"{RUNBOOKS}#{name.lower()}"


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_a_meaning_three_commands_that_exist_and_what_it_usually_was(name: str) -> None:
    meaning, commands, usually = re.split(r"^```(?:sh)?\n", SECTIONS[name], flags=re.MULTILINE)
    assert len(meaning.split()) > 10
    assert usually.strip().startswith("**Usually:** ")
    lines = commands.splitlines()
    assert len(lines) == 3
    for line in lines:
        program, *words = line.removeprefix("POD=$(").split()
        if program == "make":
            assert words[0] in TARGETS, line
        elif program == "tidegate":
            assert words[0] in COMMANDS, line
        else:
            assert program in ("kubectl", "curl"), line
        for word in re.findall(r"tidegate_eviction (\w+)", line):
            assert word in ("list", "retry"), line
