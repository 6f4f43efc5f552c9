"""A local cluster leaves nothing behind, however it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
