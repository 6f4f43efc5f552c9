"""`make local-up` and `make local-down`: a control plane to which `tidegate up` brings a definition."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app as tidegate
from lab import tools
from lab.local_cluster import LocalCluster
from lab.local_cluster import __main__ as command

from .world import REFERENCE, read

A100 = "NVIDIA-A100-SXM4-80GB"


class ReachedError(Exception):
    """The end of what a test looks at."""


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(command.app, [*map(str, words)], catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a local cluster of this test's own."""
    monkeypatch.setattr(command, "folder", lambda: tmp_path / "local")
    return tmp_path / "local"


def test_a_definition_comes_up_in_a_local_cluster_which_follows_it_and_is_taken_down(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("up", REFERENCE)
    try:
        assert done.exit_code == 0, done.output
        _, export, first, *_ = [line for line in done.stdout.splitlines() if line]
        assert export == f"export KUBECONFIG={folder / 'kubeconfig'}"
        monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
        up = CliRunner().invoke(tidegate, first.split()[1:], catch_exceptions=False)
        assert up.exit_code == 0, up.output
        assert "Up in eks-lab: dev-lab." in up.stdout
        cluster = LocalCluster.running(folder)
        assert cluster is not None
        names = {item["metadata"]["name"] for item in cluster.get("nodes")}
        planes = {"lab": 1, "east": 2, "west": 2}
        assert names == {
            *(f"{plane}-gpu-{each + 1}" for plane, count in planes.items() for each in range(count)),
            *(f"{plane}-cpu-{each}" for plane in planes for each in (1, 2)),
        }
        changed = {f"nodes: 2\n        product: {A100}": f"nodes: 3\n        product: {A100}"}
        assert run("up", read(REFERENCE, tmp_path, **changed).file).exit_code == 0
        added = {item["metadata"]["name"] for item in cluster.get("nodes")} - names
        assert added
        assert run("up", REFERENCE).exit_code == 0
        assert {item["metadata"]["name"] for item in cluster.get("nodes")} == names
        assert cluster.get("statefulset", "preload-main", "inference-dev")["status"]["readyReplicas"] == 1
    finally:
        gone = run("down")
    assert gone.stdout == "The local cluster is gone, with all that was in it.\n"
    assert not folder.exists()
    assert run("down").stdout == "There is no local cluster.\n"


def test_of_very_many_nodes_some_are_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = {f"nodes: 2\n        product: {A100}": f"nodes: 900\n        product: {A100}"}
    nodes = command._nodes(read(REFERENCE, tmp_path, **many))
    assert sum(item["metadata"]["name"].startswith("east-gpu-") for item in nodes) == 20
    assert f"20 of the 900 nodes with {A100} of east are simulated." in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("missing", [("etcd", "kube-apiserver"), ()])
def test_only_the_first_start_says_that_it_builds_kubernetes(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: Any, **__: Any) -> None:
        raise ReachedError

    monkeypatch.setattr(LocalCluster, "start", start)
    monkeypatch.setattr(tools, "missing", lambda *_: missing)
    with pytest.raises(ReachedError):
        command._running()
    assert ("Go builds etcd, kube-apiserver first" in capsys.readouterr().err) is bool(missing)
