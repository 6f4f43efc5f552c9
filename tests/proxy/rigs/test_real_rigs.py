"""The Triton of the tests is a real one, and goes away again; its load generator says why it did not complete."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.local_plane.process import listens
from lab.local_plane.triton import Triton, triton

from .perf_analyzer import PerfAnalyzerError, perf_analyzer
from .pytest_rigs import not_run
from .repository import MODELS, write

ROOT = Path(__file__).resolve().parents[3]


def test_perf_analyzer_says_why_it_did_not_complete(real_triton: Triton, tmp_path: Path) -> None:
    with pytest.raises(PerfAnalyzerError, match="no_such_model"):
        perf_analyzer(tmp_path, "http", real_triton.http, "no_such_model")


def test_it_ends_with_its_block_even_when_that_fails(tmp_path: Path) -> None:
    seen: list[Triton] = []

    def fail() -> None:
        with not_run("A REAL TRITON"), triton(tmp_path, write(tmp_path / "models", MODELS[:1])) as server:
            seen.append(server)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not listens(seen[0].http_port)
    with pytest.raises(ProcessLookupError):
        os.killpg(seen[0].process.pid, 0)


@pytest.mark.thorough
def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from lab.local_plane.process import running; "
        "run = running('a sleep', ['sleep', '600'], Path(sys.argv[1]) / 'log'); started = run.__enter__(); "
        "print(started.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        end = time.monotonic() + 10
        try:
            # Before that its leash is not on.
            while not Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"sleep\0") and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            parent.send_signal(signal.SIGKILL)
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
