"""Whoever ends tune leaves no Triton behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.tiers import first_only

from .programs import Programs

SECONDS = 40.0
PROGRAM = "import typer; from tidegate.cli.tune import tune; typer.run(tune)"


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def tritons_of(pid: int) -> list[str]:
    """The processes that tune has started as Tritons."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"tidegate_tune_{pid}_".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", first_only("SIGKILL", "SIGINT", "SIGTERM"))
def test_triton_ends_with_tune_however_that_ends(programs: Programs, sleeper: Path, tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(sleeper), "--window", "5"]
    command += ["--perf-analyzer", str(programs.perf_analyzer), "--tritonserver", str(programs.tritonserver)]
    command += ["--triton-option", programs.backends]
    (tmp_path / "scratch").mkdir()
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=said,
            env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        until(lambda: bool(list((tmp_path / "scratch").glob("*/*/perf_analyzer.csv"))) or process.poll() is not None
              or _measures(process.pid))  # fmt: skip
        assert process.poll() is None, (tmp_path / "said").read_text("utf-8")
        assert tritons_of(process.pid)
        process.send_signal(getattr(signal, how))
        code = process.wait(SECONDS)
        until(lambda: not tritons_of(process.pid))
    finally:
        process.kill()
        process.wait()
    if how == "SIGINT":
        assert code == 130
        assert list((tmp_path / "scratch").iterdir()) == []
    assert "Traceback" not in (tmp_path / "said").read_text("utf-8")


def _measures(pid: int) -> bool:
    """Whether perf_analyzer runs below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        names = [Path(f"/proc/{child}/comm").read_text("utf-8") for child in children.read_text("utf-8").split()]
    except OSError:
        return False
    return any(name.startswith("perf_analyzer") for name in names)
