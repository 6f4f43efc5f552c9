"""What a hanging plugin and a killed process leave behind: nothing."""

import time
from pathlib import Path

import pytest

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
