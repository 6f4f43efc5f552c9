"""A local cluster leaves nothing behind, however it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.local_cluster import LocalCluster
from lab.local_plane.process import ProcessError
from tests.processes import marked, until

from .world import ROOT

pytestmark = pytest.mark.thorough
STARTER = """
import sys
from pathlib import Path
from lab.local_cluster import LocalCluster
cluster = LocalCluster.start(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def running(folder: Path) -> set[int]:
    """Return the processes whose working folder is a cluster's."""
    return {pid for pid in marked("kube") | marked("etcd") | marked("kwok") if _folder(pid) == folder.resolve()}


def _folder(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").resolve(strict=True)
    except OSError:
        return None


def test_it_ends_with_its_block_leaves_only_logs_and_starts_again_empty(tmp_path: Path) -> None:
    """Also when the block fails. A restart is a new cluster with new secrets."""
    with pytest.raises(ZeroDivisionError), LocalCluster.start(tmp_path / "first") as first:  # noqa: PT012
        old = first.kubeconfig.read_text()
        first.kubectl("create", "namespace", "mine")
        assert len(running(tmp_path / "first")) == len(first.processes)
        1 / 0  # noqa: B018
    assert not running(tmp_path / "first")
    assert [entry.name for entry in (tmp_path / "first").iterdir()] == ["logs"]
    with LocalCluster.start(tmp_path / "second", name="own") as second:
        assert second.kubectl("get", "namespace", "mine", check=False).returncode
        assert second.kubeconfig.read_text() != old


def test_a_killed_parent_takes_its_cluster_along(tmp_path: Path) -> None:
    """The kernel sees to it."""
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "contracts")))}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        assert running(tmp_path)
        process.kill()
    until("all have ended", lambda: not running(tmp_path), 60)


def test_a_program_that_ends_at_once_is_named_with_its_last_words_and_the_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, program = LocalCluster.command, "kube-scheduler"

    def broken(self: LocalCluster, of: str) -> list[str]:
        return command(self, of) + (["--no-such-option=1"] if of == program else [])

    monkeypatch.setattr(LocalCluster, "command", broken)
    with pytest.raises(ProcessError, match=rf"(?s){program} ended with \d+.*log: .*no-such-option"):
        LocalCluster.start(tmp_path)
    assert not running(tmp_path)
