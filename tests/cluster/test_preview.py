"""`preview --cluster`: what an `up` would change in a real cluster, and what a hand changed there."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lab.local_cluster import LocalCluster
from rollout.cli import app

from .world import REFERENCE, objects_of, prepare, read, settled

Call = Callable[..., Result]


@dataclass(frozen=True)
class Up:
    """The reference's dev, up in a cluster, and the page that previews write."""

    cluster: LocalCluster
    namespace: str
    definition: Path
    page: Path

    def preview(self) -> Result:
        """Run the command."""
        command = ["preview", str(self.definition), "--cluster", self.cluster.context, "--summary", str(self.page)]
        return CliRunner().invoke(app, [*command, "--stack", "dev-lab"], catch_exceptions=False)

    def verdict(self) -> str:
        """Preview, and return the page's first line."""
        done = self.preview()
        assert done.exit_code == 0, done.stderr
        return self.page.read_text("utf-8").splitlines()[0]


@pytest.fixture
def up(cluster: LocalCluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Up:
    texts = {"namespace: inference-": f"namespace: {namespace}-", "context: eks-lab": f"context: {cluster.context}"}
    definition = read(REFERENCE, tmp_path, **texts)
    objects = objects_of(definition, "dev-lab")
    prepare(cluster, objects)
    cluster.apply(objects)
    settled(cluster, f"{namespace}-dev")
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    return Up(cluster, f"{namespace}-dev", tmp_path / "inference.yaml", tmp_path / "preview.md")


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")


def test_what_is_as_declared_is_no_change_with_all_the_api_server_s_defaults(up: Up) -> None:
    assert up.verdict() == "**✅ 1 stack: 1 unchanged**"


def test_what_a_hand_changed_is_seen_and_what_it_means(up: Up) -> None:
    where = "--namespace", up.namespace
    up.cluster.kubectl(*("set", "image", "statefulset/ondemand-small", "triton=registry.test/mine:1"), *where)
    up.cluster.kubectl("scale", "deployment/inference-proxy", "--replicas=3", *where)
    up.cluster.kubectl("delete", "networkpolicy", "default-deny", *where)
    assert up.verdict() == "**✏️ 1 stack: 1 changed · objects: 1 created, 2 changed · 1 pool restarts**"
    text = up.page.read_text("utf-8")
    assert "registry.test/mine&#58;1 → nvcr.io/nvidia/tritonserver&#58;26.08-py3" in text
    assert "3 pods → 1 pod: the last ones end" in text
    assert "**created** <code>NetworkPolicy default-deny</code>" in text


@pytest.mark.thorough
def test_what_is_no_longer_described_is_deleted_and_loud(up: Up) -> None:
    text = up.definition.read_text("utf-8")
    begin, end = text.index("      - name: large #"), text.index("proxy: # the one door")
    text = text[:begin] + text[end:]
    model = text.index("  - name: demand-forecast")
    text = text[:model] + text[text.index("network: #") :]
    up.definition.write_text(text, "utf-8")
    verdict = up.verdict()
    assert verdict.startswith("**⚠️ 1 model NO LONGER SERVED · 1 stack: 1 changed · objects: ")
    assert " DELETED" in verdict
    page = up.page.read_text("utf-8")
    assert "- **DELETED** <code>dev-lab</code> <code>StatefulSet ondemand-large</code>" in page
    assert "<code>model demand-forecast</code>: **IS NO LONGER SERVED**" in page
    assert "| <code>dev-lab</code> | <code>MIG 3g.40gb (mixed)</code> | 1 | **0** | 1 |" in page


@pytest.mark.thorough
def test_a_preview_changes_nothing(up: Up) -> None:
    def state() -> dict[str, Any]:
        found = up.cluster.get("all,configmaps,networkpolicies", namespace=up.namespace)
        return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in found}

    before = state()
    change(up.definition, "tag: 26.08-py3", "tag: 26.09-py3")
    assert "3 pools restart" in up.verdict()
    assert json.dumps(state()) == json.dumps(before)


@pytest.mark.thorough
def test_the_local_cluster_is_compared_with_too_and_its_absence_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rollout import local

    monkeypatch.setattr(local, "local_folder", lambda: tmp_path / "cluster")
    for name in ("KUBECONFIG", "PATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that it is put back afterwards
    definition = read(REFERENCE, tmp_path, **{"namespace: inference-": "namespace: local-"})
    page = tmp_path / "preview.md"
    command = ["preview", definition.file, "--cluster", "local", "--stack", "dev-lab", "--summary", str(page)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 1
    assert "there is no local cluster to compare with" in done.stderr
    assert "make up CLUSTER=local" in done.stderr
    stacks = local.local_stacks(definition, "dev-lab")
    cluster = local.start_local(definition, stacks, tmp_path / "cluster")
    try:
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        assert page.read_text("utf-8").startswith("**✏️ 1 stack: 1 new · objects: ")
        cluster.apply(objects_of(definition, "dev-lab"))
        CliRunner().invoke(app, command, catch_exceptions=False)
        assert page.read_text("utf-8").startswith("**✅ 1 stack: 1 unchanged**")
    finally:
        local.stop_local(tmp_path / "cluster")
