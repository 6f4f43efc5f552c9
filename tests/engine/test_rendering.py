import os
import sys
from pathlib import Path

import pytest

from rollout.init.repository import write_repository
from rollout.render import render
from stacks.command import ExitStatus
from stacks.validate import read_definition

from .conftest import OTHERS, REFERENCE
from .engine import ROOT, Engine, Project, key


@pytest.mark.parametrize(
    ("definition", "name"), [*(("inference", name) for name in REFERENCE), *((other, None) for other in OTHERS)]
)
def test_pulumi_renders_every_stack_as_we_do(brought_up: Project, definition: str, name: str | None) -> None:
    found = read_definition(brought_up.checkout / "stacks" / f"{definition}.yaml")
    stack = next(stack for stack in found.stacks if name in (None, stack.name))
    ours = {key(item): item for item in render(stack, found).objects}
    assert brought_up.rendered(stack.name) == ours


def test_pulumi_renders_a_platform_from_init_with_its_pinned_program(engine: Engine, tmp_path: Path) -> None:
    project = Project.create(engine, tmp_path, lambda root: write_repository(root / "checkout", ExitStatus()))
    (project.checkout / ".venv").symlink_to(sys.prefix)
    name = project.add_rendering_stack("prod-main", "prod", "main")
    installed = os.pathsep.join(map(str, (ROOT, ROOT / "contracts")))  # instead of an install
    project.pulumi("up", "--yes", "--skip-preview", "--suppress-progress", "--stack", name, PYTHONPATH=installed)
    found = read_definition(project.checkout / "stacks/inference.yaml")
    stack = next(stack for stack in found.stacks if stack.name == "prod-main")
    assert project.rendered("prod-main") == {key(item): item for item in render(stack, found).objects}
    project.end_processes()


def test_no_resource_of_the_reference_is_renamed(brought_up: Project) -> None:
    known = (Path(__file__).parent / "dev-lab-resources.txt").read_text().splitlines()
    found = {item["urn"].split("::", 2)[2] for item in brought_up.state("dev-lab-rendered")}
    lost = [name for name in known if not name.startswith("#") and name not in found]
    assert not lost, f"Pulumi deletes what is renamed. Give it an alias, or correct the list on purpose: {lost}"


def test_objects_follow_their_namespace_and_pods_follow_their_dependencies(brought_up: Project) -> None:
    resources = {item["urn"]: item for item in brought_up.state("prod-east-rendered")}

    def waits_for(urn: str) -> set[str]:
        item = resources[urn]
        direct = {*item.get("dependencies", ()), item["parent"]} if item.get("parent") else set()
        return direct.union(*map(waits_for, direct))

    namespace = next(urn for urn, item in resources.items() if item["type"] == "kubernetes:core/v1:Namespace")
    inside = [urn for urn, item in resources.items() if item.get("inputs", {}).get("metadata", {}).get("namespace")]
    assert len(inside) > 30
    assert [urn for urn in inside if namespace not in waits_for(urn)] == []
    everywhere = {"network-default-deny", "dataset-models-claim", "account-inference-proxy"}
    for name, needed in (
        ("proxy-deployment", {"proxy-settings", "proxy-routing"}),
        ("pool-ondemand-large-servers", {"pool-ondemand-large-eviction"}),
    ):
        urn = next(urn for urn in resources if urn.endswith(f"::prod-east-{name}"))
        waited = {other.rpartition("::")[2] for other in waits_for(urn)}
        assert {f"prod-east-{other}" for other in needed | everywhere} <= waited
