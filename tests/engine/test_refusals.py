import re

import pytest

from .engine import Project

DEV = "dev-lab-rendered"


def refused(project: Project, command: str, stack: str) -> str:
    """Run a command that must fail, and return its output as words with one space between them."""
    arguments = [command, "--yes", "--skip-preview"] if command == "up" else [command]
    answer = project.pulumi(*arguments, "--stack", stack, code=None)
    assert answer.code != 0, answer.text
    assert "Traceback" not in answer.text
    return re.sub(r"\s+", " ", answer.text)


@pytest.mark.parametrize("command", ["preview", "up"])
def test_a_broken_definition_is_refused_with_every_problem_and_its_place(project: Project, command: str) -> None:
    project.edit("pollSeconds: 30", "polSeconds: 30")
    project.edit("weight: 80", "weight: 90")
    answer = refused(project, command, DEV)
    assert re.search(r"stacks/inference\.yaml:\d+:\d+: servers\[preload\]", answer)
    assert 'did you mean "pollSeconds"' in answer
    assert "models[fraud-score]" in answer


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("definition", "stacks/nowhere.yaml", "stacks/nowhere.yaml"),
        ("environment", "dve", "no environment dve: did you mean dev?"),
        ("dataPlane", "lav", "no data plane of environment dev called lav: did you mean lab?"),
        ("dataPlane", "east", "no data plane of environment dev called east. There are: lab."),
    ],
)
def test_a_configuration_with_an_unknown_name_is_refused_with_the_nearest_one(
    project: Project, key: str, value: str, says: str
) -> None:
    project.pulumi("config", "set", key, value, "--stack", DEV)
    assert says in refused(project, "preview", DEV)


def test_a_stack_without_configuration_reports_the_missing_key(project: Project) -> None:
    project.pulumi("stack", "init", "new", "--no-select")
    assert "tidegate:environment" in refused(project, "preview", "new")


def test_a_stack_keeps_its_name_under_any_configuration(project: Project) -> None:
    project.pulumi("config", "set", "dataPlane", "west", "--stack", "prod-east-rendered")
    assert "it must be named prod-west-rendered" in refused(project, "preview", "prod-east-rendered")
    project.pulumi("config", "rm", "renderTo", "--stack", DEV)
    assert "it must be named dev-lab." in refused(project, "preview", DEV)
    project.pulumi("stack", "init", "dev-lab", "--no-select")
    project.pulumi("config", "set", "renderTo", "build/elsewhere", "--stack", "dev-lab")
    assert "it must be named dev-lab-rendered." in refused(project, "preview", "dev-lab")


def test_a_cluster_takes_no_image_without_a_digest(project: Project) -> None:
    project.pulumi("stack", "init", "dev-lab", "--no-select")
    answer = refused(project, "up", "dev-lab")
    assert "no digest in images.lock: nvcr.io/nvidia/tritonserver:" in answer
    assert "tidegate pin" in answer
    assert "kubernetes:" not in " ".join(item["type"] for item in project.state("dev-lab"))
