import pytest

from .conftest import REFERENCE
from .engine import Project

DEV = "dev-lab-rendered"
NEW_POOL = """\
      - {name: extra, loading: {mode: on-demand, capacity: 1Gi}}
"""
BEFORE_LARGE = "      - name: large #"


@pytest.mark.parametrize("stack", REFERENCE)
def test_plain_preview_passes_for_each_stack_of_the_reference_without_a_cluster(project: Project, stack: str) -> None:
    project.pulumi("stack", "select", "--create", stack)
    answer = project.pulumi("preview").text
    assert "create" in answer
    assert "images.lock has no digest for these images" in answer


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        pytest.param(
            "inference-proxy\n    tag: 0.2.0", "inference-proxy\n    tag: 0.9.0", {"proxy-deployment"}, id="image"
        ),
        pytest.param(
            "        replicas: 1\n",
            "        replicas: 0\n",
            {"namespace", "pool-preload-main-servers", "proxy-routing"},  # the namespace records the devices
            id="replicas",
        ),
        pytest.param(
            "{version: 3, weight: 80}\n      - {version: 4, weight: 20}",
            "{version: 3, weight: 70}\n      - {version: 4, weight: 30}",
            {"proxy-routing"},
            id="weights",
        ),
    ],
)
def test_an_edit_updates_only_its_objects_and_replaces_none(
    project: Project, old: str, new: str, changed: set[str]
) -> None:
    project.edit(old, new)
    assert project.changes(DEV) == {("update", f"dev-lab-{name}") for name in changed}


def test_a_new_pool_brings_its_objects_only_and_a_removed_one_takes_them_away(project: Project) -> None:
    before = {path: path.read_text() for path in project.rendered_files(DEV)}
    project.edit(BEFORE_LARGE, NEW_POOL + BEFORE_LARGE)
    changes = project.changes(DEV)
    created = {name for operation, name in changes if operation == "create"}
    assert changes - {("create", name) for name in created} == {("update", "dev-lab-proxy-routing")}
    assert {f"dev-lab-pool-ondemand-extra-{part}" for part in ("servers", "service", "headless", "budget")} < created
    assert all(name.startswith("dev-lab-pool-ondemand-extra") for name in created)

    project.up(DEV)
    assert len(project.rendered_files(DEV)) == len(before) + len(created) - len({"the pool", "its placement"})
    project.edit(NEW_POOL, "")
    changes = project.changes(DEV)
    assert changes == {("update", "dev-lab-proxy-routing"), *(("delete", name) for name in created)}
    project.up(DEV)
    assert {path: path.read_text() for path in project.rendered_files(DEV)} == before
