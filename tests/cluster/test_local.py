"""`make local-up`: a control plane to which `tidegate up` brings a definition."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app as tidegate
from lab import tools
from lab.local_cluster import LocalCluster
from lab.local_cluster import __main__ as command
from lab.local_cluster.control_plane import ClusterError
from tests.processes import programs

from .world import REFERENCE, read

A100 = "NVIDIA-A100-SXM4-80GB"


@pytest.mark.thorough
def test_a_definition_comes_up_in_a_local_cluster_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    with programs("lab.local_cluster") as start:
        running = start(REFERENCE)
        assert running.stdout
        _, _, export, first = (running.stdout.readline() for _ in range(4))
        assert export.startswith("export KUBECONFIG="), running.communicate()[1]
        kubeconfig = Path(shlex.split(export.partition("=")[2])[0])
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        up = CliRunner().invoke(tidegate, shlex.split(first)[1:], catch_exceptions=False)
        assert up.exit_code == 0, up.output
        assert "Up in eks-lab: dev-lab." in up.stdout
        kubectl, planes = str(tools.path("kubectl")), {"lab": 1, "east": 2, "west": 2}
        nodes = subprocess.check_output([kubectl, "get", "nodes", "--output=name"], text=True).split()
        assert {*nodes} == {
            *(f"node/{plane}-gpu-{number + 1}" for plane, count in planes.items() for number in range(count)),
            *(f"node/{plane}-cpu-{number}" for plane in planes for number in (1, 2)),
        }
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) == 0
        assert not kubeconfig.parent.exists()


def test_it_starts_in_no_link_and_in_no_folder_that_has_files(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for folder in (tmp_path, tmp_path / "mine", tmp_path / "link"):
        with pytest.raises(ClusterError, match="is not an empty folder"):
            LocalCluster.start(folder)
    assert (tmp_path / "mine").read_text() == "mine"


def test_of_very_many_nodes_some_are_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = {f"nodes: 2\n        product: {A100}": f"nodes: 900\n        product: {A100}"}
    nodes = command._nodes(read(REFERENCE, tmp_path, **many))
    assert sum(item["metadata"]["name"].startswith("east-gpu-") for item in nodes) == 20
    assert f"20 of the 900 nodes with {A100} of east are simulated." in capsys.readouterr().err
