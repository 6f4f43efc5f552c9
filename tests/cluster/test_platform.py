import json
import os
from pathlib import Path
from typing import Any

import pytest

from lab.local_cluster import LocalCluster
from lab.local_cluster.stand_ins import prepare
from rollout.init.repository import DEFINITION
from stacks.images_lock import PinnedImage, lock_text
from stacks.validate import read_definition
from tests.rollout.conftest import change
from tests.rollout.init.conftest import Program, commit, program

from .world import objects_of, settled

__all__ = ["program"]  # A fixture of the tests of `tidegate init`.
DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.thorough
def test_a_platform_is_applied_previewed_rolled_out_and_removed_from_its_directory(
    program: Program, cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    platform = tmp_path / "platform"
    there: Any = {name: value for name, value in cluster.environment().items() if os.environ.get(name) != value}
    program.platform(platform)
    change(platform / DEFINITION, "context: main ", f"context: {cluster.context} ")
    change(platform / DEFINITION, "namespace: inference-", f"namespace: {namespace}-")
    definition = read_definition(platform / DEFINITION)
    images = {image.reference for stack in definition.stacks for image in stack.platform.images}
    pins = [PinnedImage.model_validate({"image": image, "digest": DIGEST}) for image in images]
    (platform / "stacks/images.lock").write_text(lock_text(pins), "utf-8")
    commit(platform, "where it lives")
    prepare(cluster, objects_of(definition, "prod-main"))

    def tidegate(*words: str) -> str:
        return program.tidegate(platform, *words, **there).stdout

    here = ("--cluster", cluster.context)
    helm = ("--engine", "helm")
    assert "prod-main: " in tidegate("preflight", *here)
    tidegate("up", *here, *helm)
    settled(cluster, f"{namespace}-prod")
    tidegate("preview", *here)
    assert (platform / "build/preview.md").read_text("utf-8").startswith("**✅ ")
    change(platform / DEFINITION, "\n      replicas: 2\n", "\n      replicas: 3\n")
    assert "prod-main" in tidegate("rollout", "--environment", "prod", *helm, "--dry-run")
    tidegate("rollout", "--environment", "prod", *helm)
    (record,) = (platform / "build/rollout/prod").glob("*/rollout.json")
    assert json.loads(record.read_text("utf-8"))
    (proxy,) = [
        item
        for item in cluster.get("deployments", namespace=f"{namespace}-prod")
        if item["metadata"]["name"] == "inference-proxy"
    ]
    assert proxy["spec"]["replicas"] == 3
    tidegate("down", *here, *helm, "--yes")
    assert cluster.get("deployments,statefulsets", namespace=f"{namespace}-prod") == []
