"""Where no real node can run, that is said by name; and of one that ran nothing is left, however its tests ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import tools

from ..processes import marked
from .environment import PATIENCE, until
from .images import ROOT
from .machine import cgroup_mounts, sweep, why_not


def test_what_a_machine_lacks_for_a_node_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for user, said in (
        (1000, "containers need Linux and root"),
        (0, "there is no apt-get and no dpkg-deb on the PATH"),
    ):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert said in why_not()


PROGRAM = """
import time
from tests.node.machine import machine
with machine():
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("up", [False, True], ids=["while its node comes up", "with its node"])
def test_of_a_run_that_is_killed_no_process_is_left_and_the_next_one_sweeps_up_the_rest(up: bool) -> None:
    base = tools.cache_root() / "node"
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        try:
            (folder,) = until(lambda: [*base.glob(f"{other.pid}-*")], PATIENCE, "a node that comes up")
            if up:
                assert other.stdout
                assert other.stdout.readline() == "up\n"
            started = folder / "cluster" / "logs" / "kube-apiserver.log"
            until(started.exists, PATIENCE, "a control plane")
            until(lambda: marked(str(folder)), PATIENCE, "its processes")
        finally:
            other.kill()
    until(lambda: not marked(str(folder)), PATIENCE, "the processes to be gone")
    assert str(folder) not in Path("/proc/self/mounts").read_text()
    sweep(base)
    assert not folder.exists()
    assert not [group for place in cgroup_mounts() for group in place.glob(f"tidegate-{folder.name}")]
