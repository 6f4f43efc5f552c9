"""What a hanging plugin and a killed process leave behind: nothing."""

import os
import time
from pathlib import Path

import pytest

from rollout.engines import helm
from rollout.kubectl import Kubectl
from stacks.command import CommandError


def gone(process: int) -> bool:
    """Say whether a process has ended, whether or not somebody has asked how."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_what_kubectl_started_ends_with_it_when_it_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, told = tmp_path / "kubectl", tmp_path / "pid"
    fake.write_text(f"#!/bin/sh\nsleep 300 &\necho $! > {told}\nwait\n", "utf-8")
    fake.chmod(0o755)
    monkeypatch.setattr("rollout.kubectl._path", lambda: str(fake))
    with pytest.raises(CommandError, match="gave no answer"):
        Kubectl("lab").run("get", "pods", seconds=-10.0)  # and 15 s more
    plugin = int(told.read_text("utf-8"))
    end = time.monotonic() + 5
    while not gone(plugin) and time.monotonic() < end:
        time.sleep(0.05)
    assert gone(plugin)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_helms_values_are_their_users_alone_and_go_when_they_are_no_longer_needed(temporary: Path) -> None:
    with helm._values({"a": "ä"}) as path:
        assert path.parent == temporary
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_text("utf-8") == "a: ä\n"
    assert not list(temporary.iterdir())


def test_values_that_a_killed_process_left_go_at_the_next_run_and_no_others(temporary: Path) -> None:
    kept = temporary / "kept"
    kept.write_text("", "utf-8")
    stale, fresh, link, other = (
        temporary / name for name in ("tidegate-values-a.yaml", "tidegate-values-b.yaml", "tidegate-values-c.yaml", "x")
    )
    for path in (stale, fresh, other):
        path.write_text("a: 1\n", "utf-8")
    link.symlink_to(kept)
    with helm._values({}) as held:
        for path in (stale, other, kept, held):
            os.utime(path, (1, 1))
        with helm._values({}):
            assert held.exists()
        assert not stale.exists()
    assert sorted(path.name for path in temporary.iterdir()) == ["kept", fresh.name, link.name, "x"]
