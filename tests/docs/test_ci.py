"""The examples of docs/ci.md: they are workflows, and what they run does what the page says."""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/ci.md").read_text("utf-8")
JOBS = {"preview", "comment", "drift", "rollout"}


def blocks() -> list[Any]:
    """Return the YAML blocks of the page; `on` stays a text, as on GitHub."""
    texts = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [yaml.load(text, yaml.BaseLoader) for text in texts]


GITHUB, GITLAB = blocks()


@dataclass(frozen=True)
class Command:
    """What one step runs, with the variables that it gets."""

    text: str
    variables: dict[str, str] = field(default_factory=dict)
    always: bool = False


def github(job: str) -> list[Command]:
    """Return what a job runs, but for the install: the runner has this code as `tidegate`."""
    out = []
    for step in GITHUB["jobs"][job]["steps"]:
        if "run" in step and "pip install" not in step["run"]:
            variables = {**GITHUB["jobs"][job].get("env", {}), **step.get("env", {})}
            out.append(Command(step["run"], variables, "always()" in step.get("if", "")))
    return out


def gitlab(job: str) -> list[Command]:
    return [Command(line, GITLAB[job].get("variables", {})) for line in GITLAB[job]["script"]]


# ---- they are what the platforms take ----


def test_the_examples_have_the_jobs_of_the_page_and_no_expression_of_githubs_stands_in_a_shell() -> None:
    """It could be code there."""
    assert set(GITHUB["jobs"]) == JOBS <= set(GITLAB)
    for job in GITHUB["jobs"].values():
        assert not any("${{" in step.get("run", "") for step in job["steps"])


def test_whoever_may_write_runs_nothing_of_the_change() -> None:
    for name, job in GITHUB["jobs"].items():
        writes = "write" in str(job.get("permissions", GITHUB["permissions"]))
        assert writes == (name == "comment")
        uses = [step.get("uses", "") for step in job["steps"]]
        assert not (writes and any(use.startswith("actions/checkout") for use in uses))
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] == "false"
    assert GITLAB["comment"]["variables"]["GIT_STRATEGY"] == "none"
    assert "pull_request_target" not in GITHUB["on"]


def test_secrets_are_named_only_in_jobs_that_no_fork_and_no_change_has() -> None:
    for name in JOBS:
        of_a_change = any("merge_request_event" in rule["if"] for rule in GITLAB[name]["rules"])
        assert ("KUBECONFIG" in str(GITLAB[name])) != of_a_change
        assert ("KUBECONFIG" in str(GITHUB["jobs"][name])) == (name in ("drift", "rollout"))
        assert ("COMMENT_TOKEN" in str(GITLAB[name])) == (name == "comment")
    (rule,) = GITLAB["comment"]["rules"]
    assert rule["if"].split(" && ") == [
        '$CI_PIPELINE_SOURCE == "merge_request_event"',
        "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_MERGE_REQUEST_PROJECT_ID",
    ]


def surroundings() -> dict[str, str]:
    """Return the environment without what `make test` put into it for its own sake."""
    ours = ("PYTHONPATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    return {name: value for name, value in os.environ.items() if name not in ours}


TEXTS = [command.text for job in JOBS for command in (*github(job), *gitlab(job))]
COMMANDS = sorted(
    {line for text in TEXTS for line in text.splitlines() if line.startswith("tidegate ")}
    | set(re.findall(r"`(tidegate rollout [^`]*)`", PAGE.replace("\n", " ")))
)


@pytest.mark.parametrize("command", COMMANDS)
def test_tidegate_has_every_command_and_option(command: str) -> None:
    verb, *words = shlex.split(command.partition(" > ")[0])[1:]
    known = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    with known.make_context(verb, words):
        pass


# ---- they do what the page says ----


@dataclass(frozen=True)
class Runner:
    """A machine of CI: its working folder, and the programs and variables that the platform gives."""

    home: Path

    def run(self, wanted: list[Command], **platform: str) -> list[subprocess.CompletedProcess[str]]:
        """Run commands as a platform does: after a failure only those that are always run."""
        done: list[subprocess.CompletedProcess[str]] = []
        for command in wanted:
            if any(one.returncode for one in done) and not command.always:
                continue
            variables = {name: self._filled(value, platform) for name, value in command.variables.items()}
            path = f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}"
            environment = surroundings() | variables | platform | {"PATH": path, "GIT_CONFIG_GLOBAL": os.devnull}
            shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", command.text]
            done.append(subprocess.run(shell, cwd=self.home, env=environment, capture_output=True, text=True))
        return done

    @staticmethod
    def _filled(value: str, platform: dict[str, str]) -> str:
        """Fill in what GitHub would put for an expression."""
        return re.sub(r"\$\{\{\s*([\w.]+)\s*\}\}", lambda found: platform[found[1].replace(".", "_")], value)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.mark.skipif(shutil.which("jq") is None, reason="NOT RUN: JQ IS NOT ON THE PATH, so no annotations were made.")
def test_annotations_come_of_the_document_and_a_text_of_the_definition_is_only_text(runner: Runner) -> None:
    finding = {"file": "stacks/x.yaml", "line": 7, "column": 1, "level": "advisory", "source": "guardrail"}
    words = {"what": "bad\n::error::mine 100%", "why": "", "do": "mend it", "rule": "r", "stacks": ["dev"]}
    stack = {"name": "prod-east", "file": "stacks/x.yaml", "line": 9, "weaker": ["no longer asks"]}
    nowhere = {**finding, **words, "line": None}
    found = {"findings": [{**finding, **words, "object": "o", "path": ""}, nowhere], "stacks": [stack]}
    (runner.home / "preview.json").write_text(json.dumps(found), "utf-8")
    (step,) = [command for command in github("preview") if "jq" in command.text]
    (done,) = runner.run([step], RUNNER_TEMP=str(runner.home))
    assert done.stdout.splitlines() == [
        "::warning file=stacks/x.yaml,line=7::bad%0A::error::mine 100%25 mend it",
        "::warning file=stacks/x.yaml,line=9::prod-east no longer asks",
    ]
    *_, step = [Command(text) for text in GITLAB["preview"]["after_script"]]
    (done,) = runner.run([step])
    (one,) = json.loads((runner.home / "code-quality.json").read_text("utf-8"))
    assert (one["severity"], one["location"]) == ("minor", {"path": "stacks/x.yaml", "lines": {"begin": 7}})
    assert {"description", "check_name", "fingerprint"} < one.keys()


def test_a_verdict_that_nothing_would_change_passes_the_look_for_drift_and_any_other_fails(runner: Runner) -> None:
    page = runner.home / "build/preview.md"
    page.parent.mkdir()
    look = [command for command in (*github("drift"), *gitlab("drift")) if "grep" in command.text]
    assert len(look) == 2
    for verdict, code in (
        ("**✅ 1 stack: 1 unchanged**", 0),
        ("**✏️ 1 stack: 1 changed**", 1),
        ("**⛔ No preview**", 1),
    ):
        page.write_text(f"{verdict}\n\nthe rest ✅\n", "utf-8")
        assert [one.returncode for command in look for one in runner.run([command])] == [code, code]


def test_jobs_install_what_the_repository_pins_and_the_comment_installs_nothing() -> None:
    for name, job in GITHUB["jobs"].items():
        installs = [step for step in job["steps"] if "pip install --quiet -r requirements.txt" in step.get("run", "")]
        assert len(installs) == (name != "comment")
    assert GITLAB["default"]["before_script"] == ["pip install --quiet -r requirements.txt"]
    assert GITLAB["comment"]["before_script"] == []
