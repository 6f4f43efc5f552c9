import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pulumi
import pytest

from rollout.program import run

from .engine import ROOT, Project

DEV = "dev-lab-rendered"
CONFIGURED = {"environment": "dev", "dataPlane": "lab"}
RENDERED = {**CONFIGURED, "renderTo": "build/rendered"}
AS_IT_IS = ("dataPlanes:", "dataPlanes:")
RENAMED = ("  - name: lab\n", "  - name: labs\n    formerly: [lab]\n")
REFUSALS = [
    (DEV, {**RENDERED, "definition": "stacks/nowhere.yaml"}, AS_IT_IS, "stacks/nowhere.yaml"),
    (DEV, {**RENDERED, "environment": "dve"}, AS_IT_IS, 'no environment dve. Did you mean "dev"?'),
    (DEV, {**RENDERED, "dataPlane": "lav"}, AS_IT_IS, 'data plane of environment dev called lav. Did you mean "lab"?'),
    (DEV, {**RENDERED, "dataPlane": "east"}, AS_IT_IS, "no data plane of environment dev called east. There are: lab."),
    (DEV, {**RENDERED, "environment": "prod", "dataPlane": "west"}, AS_IT_IS, "needs the name prod-west-rendered."),
    (DEV, CONFIGURED, AS_IT_IS, "needs the name dev-lab."),
    ("dev-lab", RENDERED, AS_IT_IS, "needs the name dev-lab-rendered."),
    ("new", {}, AS_IT_IS, "tidegate:environment"),
    ("dev-lab", CONFIGURED, RENAMED, "dev on lab is now dev on labs. First move Pulumi's state to that name: "),
    ("dev-lab", CONFIGURED, AS_IT_IS, "images.lock has no digest for these images: nvcr.io/nvidia/tritonserver:"),
    ("dev-lab", CONFIGURED, AS_IT_IS, "run tidegate pin and commit images.lock."),
]  # fmt: skip
refusals = pytest.mark.parametrize(("stack", "configuration", "edit", "reason"), REFUSALS)


def refused(project: Project, command: str, stack: str) -> str:
    """Run a command that must fail, and return its output as words with one space between them."""
    arguments = [command, "--yes", "--skip-preview"] if command == "up" else [command]
    answer = project.pulumi(*arguments, "--stack", stack, code=None)
    assert answer.code != 0, answer.text
    assert "Traceback" not in answer.text
    return " ".join(answer.text.split())


@pytest.mark.parametrize("command", ["preview", "up"])
def test_a_broken_definition_is_refused_with_every_problem_and_its_place(project: Project, command: str) -> None:
    project.edit("pollSeconds: 30", "polSeconds: 30")
    project.edit("weight: 80", "weight: 90")
    answer = refused(project, command, DEV)
    assert re.search(r"stacks/inference\.yaml:\d+:\d+: servers\[preload\]", answer)
    assert 'Did you mean "pollSeconds"' in answer
    assert "models[fraud-score]" in answer


@refusals
def test_pulumi_refuses_a_wrong_configuration_and_changes_no_object(
    project: Project, stack: str, configuration: Mapping[str, str], edit: tuple[str, str], reason: str
) -> None:
    project.edit(*edit)
    project.configure(stack, configuration)
    before = {one["urn"] for one in project.state(stack)}
    assert reason in refused(project, "up", stack)
    assert not [urn for urn in before ^ {one["urn"] for one in project.state(stack)} if "kubernetes:" in urn]


def refused_by_the_program(
    folder: Path, patch: pytest.MonkeyPatch, stack: str, configuration: Mapping[str, str], edit: tuple[str, str]
) -> str:
    """Run the program without the engine, and return its refusal as words with one space between them."""
    (folder / "stacks").mkdir()
    text = (ROOT / "stacks/inference.yaml").read_text("utf-8")
    (folder / "stacks/inference.yaml").write_text(text.replace(*edit), "utf-8")
    patch.chdir(folder)
    patch.setattr(pulumi, "get_stack", lambda: stack)
    patch.setattr(pulumi.runtime, "is_dry_run", lambda: False)
    patch.setattr(pulumi, "Config", partial(pulumi.Config, "tidegate"))
    patch.setenv("PULUMI_CONFIG", json.dumps({f"tidegate:{key}": value for key, value in configuration.items()}))
    with pytest.raises((pulumi.RunError, pulumi.ConfigMissingError)) as caught:
        run()
    return " ".join(str(caught.value).split())


@refusals
def test_the_program_refuses_it_with_the_same_words_without_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    stack: str, configuration: Mapping[str, str], edit: tuple[str, str], reason: str,
) -> None:  # fmt: skip
    assert reason in refused_by_the_program(tmp_path, monkeypatch, stack, configuration, edit)


def test_a_command_to_copy_has_the_configured_definition_not_a_rollouts_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_READ_FROM", "stacks/inference.yaml")
    configuration = {**CONFIGURED, "definition": "own/platform.yaml"}
    message = refused_by_the_program(tmp_path, monkeypatch, "dev-lab", configuration, RENAMED)
    assert message.endswith(" tidegate up own/platform.yaml --cluster eks-lab --stack dev-labs --engine pulumi")
