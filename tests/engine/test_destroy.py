"""Removing a stack: volumes and claims are protected. With their namespace they survive even a forced destroy."""

from .engine import Project

DEV = "dev-lab-rendered"
KEPT = {
    "v1-namespace-default-inference-dev.yaml",  # it contains the claim
    "v1-persistentvolume-default-inference-dev-models.yaml",
    "v1-persistentvolumeclaim-inference-dev-models.yaml",
}


def names(project: Project) -> set[str]:
    return {path.name for path in project.rendered_files(DEV)}


def test_a_plain_destroy_is_refused_and_takes_nothing(project: Project) -> None:
    before = names(project)
    answer = project.pulumi("destroy", "--yes", "--stack", DEV, code=None)
    assert answer.code != 0
    assert "protect" in answer.text
    assert names(project) == before


def test_unprotected_objects_can_be_destroyed_and_volumes_stay(project: Project) -> None:
    project.pulumi("destroy", "--yes", "--exclude-protected", "--stack", DEV)
    assert names(project) == KEPT
    assert {"PersistentVolume", "PersistentVolumeClaim"} < {
        item["type"].rpartition(":")[2] for item in project.state(DEV)
    }
    project.up(DEV)
    assert len(names(project)) > 30


def test_volumes_stay_even_when_the_rest_of_a_stack_is_given_up(project: Project) -> None:
    project.pulumi("state", "unprotect", "--all", "--yes", "--stack", DEV)
    project.pulumi("destroy", "--yes", "--stack", DEV)
    assert names(project) == KEPT
    assert project.state(DEV) == []


def test_a_volume_that_would_be_replaced_is_refused(project: Project) -> None:
    project.edit("fs-0a1b2c3d4e5f60001", "fs-0a1b2c3d4e5f6000f")
    answer = project.pulumi("preview", "--stack", DEV, code=None)
    assert answer.code != 0
    assert "protect" in answer.text
    assert "dev-lab-dataset-models-volume" in answer.text
