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


def pipeline(name: str) -> Any:
    """Return the jobs of `tidegate init` and of the page. `BaseLoader` keeps the key `on` a string, as GitHub does."""
    texts = [(ROOT / directory / name).read_text("utf-8") for directory in ("rollout/init/text", "docs/ci")]
    first, second = (yaml.load(text, yaml.BaseLoader) for text in texts)
    return first | second | {key: first[key] | second[key] for key in ("on", "jobs") if key in first}


GITHUB, GITLAB = pipeline("github.yaml"), pipeline("gitlab.yaml")


@dataclass(frozen=True)
class Command:
    text: str
    variables: dict[str, str] = field(default_factory=dict)
    always: bool = False


def github(job: str) -> list[Command]:
    """Return the commands of a job except the install, because the runner has this code as `tidegate`."""
    out = []
    for step in GITHUB["jobs"][job]["steps"]:
        if "run" in step and "pip install" not in step["run"]:
            variables = {**GITHUB["jobs"][job].get("env", {}), **step.get("env", {})}
            out.append(Command(step["run"], variables, "always()" in step.get("if", "")))
    return out


def gitlab(job: str) -> list[Command]:
    return [Command(line, GITLAB[job].get("variables", {})) for line in GITLAB[job]["script"]]


# ---- valid workflows ----


def test_the_examples_have_the_jobs_of_the_page_and_no_github_expression_in_a_shell() -> None:
    """A shell could run the value of an expression."""
    assert set(GITHUB["jobs"]) == JOBS <= set(GITLAB)
    for job in GITHUB["jobs"].values():
        assert not any("${{" in step.get("run", "") for step in job["steps"])


def test_jobs_that_can_write_run_no_code_of_the_change() -> None:
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


def test_only_jobs_that_no_fork_and_no_change_can_start_name_secrets() -> None:
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
    """Return the environment without the variables that `make test` sets for itself."""
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


# ---- behaviour of the commands ----


@dataclass(frozen=True)
class Runner:
    home: Path

    def run(self, commands: list[Command], **platform: str) -> list[subprocess.CompletedProcess[str]]:
        """Run commands as a platform does: after a failure, only those with `always`."""
        done: list[subprocess.CompletedProcess[str]] = []
        for command in commands:
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
        return re.sub(r"\$\{\{\s*([\w.]+)\s*\}\}", lambda found: platform[found[1].replace(".", "_")], value)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.mark.skipif(shutil.which("jq") is None, reason="NOT RUN: JQ IS NOT ON THE PATH, so no annotations were made.")
def test_annotations_come_from_the_document_and_escape_text_of_the_definition(runner: Runner) -> None:
    finding = {"file": "stacks/x.yaml", "line": 7, "column": 1, "level": "advisory", "source": "guardrail"}
    words = {"what": "bad\n::error::mine 100%", "why": "", "do": "fix it", "rule": "r", "stacks": ["dev"]}
    stack = {"name": "prod-east", "file": "stacks/x.yaml", "line": 9, "weaker": ["no longer checks"]}
    nowhere = {**finding, **words, "line": None}
    found = {"findings": [{**finding, **words, "object": "o", "path": ""}, nowhere], "stacks": [stack]}
    (runner.home / "preview.json").write_text(json.dumps(found), "utf-8")
    (step,) = [command for command in github("preview") if "jq" in command.text]
    (done,) = runner.run([step], RUNNER_TEMP=str(runner.home))
    assert done.stdout.splitlines() == [
        "::warning file=stacks/x.yaml,line=7::bad%0A::error::mine 100%25 fix it",
        "::warning file=stacks/x.yaml,line=9::prod-east no longer checks",
    ]
    *_, step = [Command(text) for text in GITLAB["preview"]["after_script"]]
    (done,) = runner.run([step])
    (one,) = json.loads((runner.home / "code-quality.json").read_text("utf-8"))
    assert (one["severity"], one["location"]) == ("minor", {"path": "stacks/x.yaml", "lines": {"begin": 7}})
    assert {"description", "check_name", "fingerprint"} < one.keys()


def test_drift_passes_only_with_the_verdict_that_nothing_would_change(runner: Runner) -> None:
    page = runner.home / "build/preview.md"
    page.parent.mkdir()
    commands = [command for command in (*github("drift"), *gitlab("drift")) if "grep" in command.text]
    assert len(commands) == 2
    for verdict, code in (
        ("**✅ 1 stack: 1 unchanged**", 0),
        ("**✏️ 1 stack: 1 changed**", 1),
        ("**⛔ No preview**", 1),
    ):
        page.write_text(f"{verdict}\n\nthe rest ✅\n", "utf-8")
        assert [one.returncode for command in commands for one in runner.run([command])] == [code, code]


def test_jobs_install_the_pinned_requirements_and_the_comment_job_installs_nothing() -> None:
    for name, job in GITHUB["jobs"].items():
        installs = [step for step in job["steps"] if "pip install --quiet -r requirements.txt" in step.get("run", "")]
        assert len(installs) == (name != "comment")
    assert GITLAB["default"]["before_script"] == ["pip install --quiet -r requirements.txt"]
    assert GITLAB["comment"]["before_script"] == []
