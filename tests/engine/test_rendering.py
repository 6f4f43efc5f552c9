"""What Pulumi's own renderer writes is what the evaluation in process gives."""

from pathlib import Path
from typing import Any

import pytest

from rollout.render import render
from stacks.stack import Stack
from stacks.validate import read_definition

from .conftest import OTHERS, REFERENCE
from .engine import Project, key


def stacks_of(project: Project, definition: str) -> tuple[tuple[Stack, ...], Any]:
    found = read_definition(project.checkout / "stacks" / f"{definition}.yaml")
    return found.stacks, found.lock


def assert_rendered_alike(project: Project, stack: Stack, lock: Any) -> None:
    ours = {key(item): item for item in render(stack, lock, "").objects}
    theirs = project.rendered(stack.name)
    assert theirs.keys() == ours.keys()
    for name, item in theirs.items():
        assert item == ours[name]


@pytest.mark.parametrize("name", REFERENCE)
def test_pulumi_renders_each_stack_of_the_reference_as_we_do(brought_up: Project, name: str) -> None:
    stacks, lock = stacks_of(brought_up, "inference")
    assert_rendered_alike(brought_up, next(stack for stack in stacks if stack.name == name), lock)


@pytest.mark.parametrize("definition", OTHERS)
def test_pulumi_renders_definitions_with_much_switched_on_as_we_do(brought_up: Project, definition: str) -> None:
    stacks, lock = stacks_of(brought_up, definition)
    assert_rendered_alike(brought_up, stacks[0], lock)


def test_a_second_up_changes_nothing(project: Project) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in project.rendered_files("prod-east-rendered")}

    before = files()
    project.up("prod-east-rendered", "--expect-no-changes")
    assert files() == before


def test_everything_in_a_namespace_is_made_after_it_and_deleted_before_it(brought_up: Project) -> None:
    resources = {item["urn"]: item for item in brought_up.state("prod-east-rendered")}

    def waits_for(urn: str) -> set[str]:
        item = resources[urn]
        direct = {*item.get("dependencies", ()), item["parent"]} if item.get("parent") else set()
        return direct.union(*map(waits_for, direct))

    namespace = next(urn for urn, item in resources.items() if item["type"] == "kubernetes:core/v1:Namespace")
    inside = [urn for urn, item in resources.items() if item.get("inputs", {}).get("metadata", {}).get("namespace")]
    assert len(inside) > 30
    assert [urn for urn in inside if namespace not in waits_for(urn)] == []


def test_no_resource_of_the_reference_is_renamed(brought_up: Project) -> None:
    known = (Path(__file__).parent / "dev-lab-resources.txt").read_text().splitlines()
    found = {item["urn"].split("::", 2)[2] for item in brought_up.state("dev-lab-rendered")}
    lost = [name for name in known if not name.startswith("#") and name not in found]
    assert not lost, f"Pulumi deletes what is renamed. Give it an alias, or correct the list on purpose: {lost}"


def test_pods_start_after_what_they_need(brought_up: Project) -> None:
    resources = {item["urn"]: item for item in brought_up.state("prod-east-rendered")}

    def waits_for(urn: str) -> set[str]:
        item = resources[urn]
        direct = {*item.get("dependencies", ()), item["parent"]} if item.get("parent") else set()
        return direct.union(*map(waits_for, direct))

    def named(names: set[str]) -> set[str]:
        return {name.rpartition("::")[2] for name in names}

    everywhere = {
        "prod-east-network-default-deny",
        "prod-east-dataset-models-claim",
        "prod-east-account-inference-proxy",
    }
    for name, needed in (
        ("prod-east-proxy-deployment", {"prod-east-proxy-settings", "prod-east-proxy-routing"}),
        ("prod-east-pool-ondemand-large-servers", {"prod-east-pool-ondemand-large-eviction"}),
    ):
        urn = next(urn for urn in resources if urn.endswith(f"::{name}"))
        assert needed | everywhere <= named(waits_for(urn))
