import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cli.app import app
from components.dashboards import DASHBOARDS
from stacks.definition.environment import RUNBOOKS
from tests.components.alerts import rules
from tests.components.dashboards import QUESTIONS
from tests.components.expected import CASES, objects

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = dict(
    re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", (ROOT / "docs/runbooks.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
)
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def alerts() -> dict[str, dict[str, str]]:
    return {rule["alert"]: rule["annotations"] for rule in rules() if "alert" in rule}


def test_each_problem_of_an_engineer_on_call_leads_to_its_panel() -> None:
    page = (ROOT / "docs/metrics.md").read_text("utf-8")
    titles = {each.name: each.title for each in DASHBOARDS}
    for question, (dashboard, panel) in QUESTIONS.items():
        assert f"| {question}? | {titles[dashboard]} | {panel} |" in page


def test_each_alert_leads_to_a_section_and_each_section_is_of_an_alert() -> None:
    assert {*SECTIONS} == {*alerts()}
    for name, annotations in alerts().items():
        assert annotations["runbook_url"] == f"{RUNBOOKS}#{name.lower()}"


@cache
def rendered() -> list[Any]:
    return [item for stack in CASES for item in objects(stack)]


@cache
def pods() -> list[Any]:
    return [each["spec"]["template"] for each in rendered() if each["kind"] in ("Deployment", "StatefulSet")]


BLOCKS = [
    (page, re.sub(r"(?m)\s+#.*$|^#.*\n", "", block.replace("\\\n", " ")))
    for page in ("docs/runbooks.md", "docs/metrics.md")
    for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
]
LINES = [(page, line) for page, block in BLOCKS for line in block.splitlines()]
KUBECTL = [(page, line) for page, line in LINES if "kubectl" in line]
VARIABLES = dict(re.findall(r"^(?:export )?(\w+)=(\S+)", BLOCKS[0][1], re.MULTILINE))
"""The variables that the page's first block sets for all others."""


def named(line: str, what: str) -> list[str]:
    return re.findall(rf"--{what} (\S+)", line)


def found_by(selector: str) -> list[dict[str, Any]]:
    """Return the templates of the pods that kubectl finds by these labels. A variable stands for any value."""
    wanted = [each.replace('"', "").partition("=") for each in selector.split(",")]
    return [
        pod
        for pod in pods()
        if all(
            key in pod["metadata"]["labels"] and (not is_ or value[0] == "$" or pod["metadata"]["labels"][key] == value)
            for key, is_, value in wanted
        )
    ]


@pytest.mark.parametrize(("page", "line"), KUBECTL)
def test_kubectl_finds_pods_by_these_labels_and_each_has_the_container(page: str, line: str) -> None:
    del page
    containers = [
        {each["name"] for each in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))}
        for pod in pods()
    ]
    for selector in named(line, "selector"):
        found = found_by(selector)
        assert found, line
        containers = [within for pod, within in zip(pods(), containers, strict=True) if pod in found]
    for container in named(line, "container"):
        where = containers if named(line, "selector") else [max(containers, key=lambda each: container in each)]
        assert all(container in each for each in where), line
    for kind, name in re.findall(r"\b(deployment|configmap)[ /]([a-z-]+)", line):
        assert (kind, name) in {(each["kind"].lower(), each["metadata"]["name"]) for each in rendered()}, line


@pytest.mark.parametrize(("page", "line"), LINES)
def test_the_variables_of_a_command_are_set_by_the_first_block(page: str, line: str) -> None:
    del page
    assert {*re.findall(r"\$\{?(\w+)", line)} <= {*VARIABLES}, line


def test_the_first_block_has_the_definitions_variables_and_commands_use_them() -> None:
    definition = yaml.safe_load((ROOT / "stacks/inference.yaml").read_text("utf-8"))
    environment, _, plane = VARIABLES["STACK"].partition("-")
    assert VARIABLES["CLUSTER"] in {each["context"] for each in definition["dataPlanes"] if each["name"] == plane}
    assert VARIABLES["NS"] in {each["namespace"] for each in definition["environments"] if each["name"] == environment}
    [server] = [each for each in definition["servers"] if each["name"] == VARIABLES["SERVER"]]
    assert VARIABLES["POOL"] in {each["name"] for each in server["pools"]}
    assert VARIABLES["POD"] == f"{VARIABLES['SERVER']}-{VARIABLES['POOL']}-0"
    assert VARIABLES["MODEL"] in {each["name"] for each in definition["models"]}
    made = [line for page, line in LINES if line.startswith("tidegate advise ") and "runbooks" in page]
    assert made
    for line in made:
        assert '--stack "$STACK"' in line, "a definition has several stacks"


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_meaning_impact_three_commands_that_exist_and_mitigation(name: str) -> None:
    before, commands, after = re.split(r"^```(?:sh)?\n", SECTIONS[name], flags=re.MULTILINE)
    headings = r"\n\*\*Meaning:\*\* (.*)\n\*\*Impact:\*\* (.*)\n\*\*Diagnosis:\*\*\n.*"
    found = re.fullmatch(headings, before, re.DOTALL)
    assert found
    meaning, impact = found.groups()
    assert len(meaning.split()) > 5
    assert impact.strip()
    assert after.startswith("\n**Mitigation:**\n- ")
    lines = [line for line in commands.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    assert len(lines) == 3
    for line in lines:
        program, *words = line.removeprefix("POD=$(").split()
        if program == "tidegate":
            assert words[0] in COMMANDS, line
        else:
            assert program in ("kubectl", "curl"), line
        for word in re.findall(r"tidegate_eviction (\w+)", line):
            assert word in ("list", "retry"), line


PHRASES = re.findall(r"\| grep ['\"]([a-z]+ [a-z ]+)['\"]", "".join(SECTIONS.values()))


@pytest.mark.parametrize("phrase", sorted({*PHRASES}))
def test_a_phrase_that_a_runbook_looks_for_is_in_a_log_message(phrase: str) -> None:
    sources = [path for folder in ("proxy", "policies/eviction", "service") for path in (ROOT / folder).rglob("*.py")]
    assert any(phrase in path.read_text("utf-8") for path in sources)
