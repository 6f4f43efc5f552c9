"""Where no real node can run, that is said by name. These tests run everywhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .keeper import ROOT
from .machine import CONTROLLERS, handed_down, why_not


def test_tests_that_cannot_run_here_say_so_in_one_line_with_their_number() -> None:
    """A machine without apt, util-linux and everything else."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/node/test_node_images.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PATH": "/nowhere"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert line.startswith("SKIPPED [2] ")
    assert "NOT RUN: NO REAL NODE CAN RUN HERE" in line
    listed = [line.strip() for line in done.stdout.splitlines() if line.startswith("  tests/node/")]
    assert len(listed) == 2, done.stdout
    assert "tests/node/test_node_images.py::test_the_same_folder_becomes_the_same_image" in listed


def test_somebody_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_not() == "containers need Linux and root"


def test_a_machine_without_apt_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no apt-get and no dpkg-deb on the PATH" in why_not()


def test_cgroups_of_version_2_must_hand_their_controllers_down(tmp_path: Path) -> None:
    assert handed_down(tmp_path) == CONTROLLERS, "version 1 has a folder for each"
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    assert CONTROLLERS - handed_down(tmp_path) == {"cpuset", "pids"}
