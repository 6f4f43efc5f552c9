import os
import sys
from pathlib import Path

from tests.rollout.conftest import Ended

from .engine import Project

PROD = "prod-east-rendered"


def preview(project: Project, code: int) -> Ended:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return project.pulumi("preview", "--stack", PROD, "--policy-pack", "policies/guardrails", code=code, PATH=path)


def test_the_reference_passes_the_pack_with_advisories_about_its_images(project: Project) -> None:
    answer = preview(project, 0).text
    assert "tidegate-guardrails" in answer
    assert "[advisory]  images-are-pinned-by-digest.advisory" in answer
    assert "[mandatory]" not in answer


def test_a_mandatory_finding_stops_the_preview_and_names_object_and_remedy(project: Project) -> None:
    project.edit("images-are-pinned-by-digest: advisory", "images-are-pinned-by-digest: mandatory")
    answer = preview(project, 1).text
    assert "[mandatory]  images-are-pinned-by-digest" in answer
    assert "images-are-pinned-by-digest.advisory" not in answer
    assert "Run `tidegate pin`" in answer
