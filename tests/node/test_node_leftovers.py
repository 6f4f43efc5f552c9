"""However a test run ends, nothing of its node is left: no process, no mount, no cgroup, no folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import tools

from .environment import PATIENCE, until
from .keeper import PROCESS, ROOT, cgroup_mounts
from .machine import Machine, machine

pytestmark = pytest.mark.thorough
RUN = f"left-{os.getpid()}"
PROGRAM = f"""
import time
from tests.node.machine import machine
with machine({RUN!r}):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other_run() -> Iterator["subprocess.Popen[str]"]:
    """Another process, which brings up a node of its own."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


def processes(mark: str) -> list[Path]:
    """Return the processes whose command or environment names a text."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "cmdline").read_text() or mark in (process / "environ").read_text(errors="replace"):
                found.append(process)
        except OSError:
            continue
    return found


def cgroups() -> list[Path]:
    return [group for place in cgroup_mounts() for group in place.glob(f"tidegate-{RUN}")]


@pytest.mark.usefixtures("node")
def test_a_run_that_is_killed_while_its_node_comes_up_leaves_nothing(other_run: "subprocess.Popen[str]") -> None:
    folder = tools.cache_root() / "node" / RUN
    until(lambda: (folder / "cluster" / "logs" / "kube-apiserver.log").exists(), PATIENCE, "a node that comes up")
    assert cgroups()
    other_run.kill()
    until(lambda: not folder.exists(), PATIENCE, "the folder to be gone")
    until(lambda: not processes(str(folder)), PATIENCE, "the processes to be gone")
    assert not cgroups()
    assert str(folder) not in Path("/proc/self/mounts").read_text()


def test_what_is_left_when_the_keeper_is_killed_too_is_swept_away_by_the_next_run(
    node: Machine, other_run: "subprocess.Popen[str]"
) -> None:
    folder = tools.cache_root() / "node" / RUN
    assert other_run.stdout is not None
    assert other_run.stdout.readline() == "up\n"
    assert len(processes(str(folder))) >= 8, "control plane, containerd, kubelet, kube-proxy"
    assert [group for place in cgroups() for group in place.rglob("pod*")]
    (keeper,) = [one for one in processes(str(folder)) if b"tests.node.keeper" in (one / "cmdline").read_bytes()]
    first = Path("/proc") / (folder / PROCESS).read_text()
    os.kill(int(keeper.name), signal.SIGKILL)
    other_run.kill()
    until(lambda: not first.exists(), PATIENCE, "the node to end with its keeper")
    until(lambda: not processes(str(folder)), PATIENCE, "the processes to be gone")
    assert folder.exists()
    with machine(node.folder.name):
        pass
    assert not folder.exists()
    assert not cgroups()
