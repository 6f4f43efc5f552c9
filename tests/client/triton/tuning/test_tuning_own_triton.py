"""An entry is measured on Tritons that tune runs itself, one for each configuration; none is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tidegate.errors import UnreachableError
from tidegate.findings import errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.entry import read_entry
from tidegate.triton.entries.text import parse_config
from tidegate.triton.tuning.plan import Report, SweepPlan
from tidegate.triton.tuning.server import TritonProgram
from tidegate.triton.tuning.sweep import tune, tuned_text, write_config

from tests.client.tiers import first_only

from .programs import ONE_ONLY, Programs, write_model

SHORT = 0.25
SECONDS = 40.0
PROGRAM = "import typer; from tidegate.triton.cli.tune import tune; typer.run(tune)"


def run(programs: Programs, entry: Path, plan: SweepPlan, progress: Callable[[str], None] = print) -> Report:
    server = TritonProgram.find(programs.tritonserver, (programs.backends,))
    return tune(read_entry(entry), plan, server=server, perf_analyzer=programs.perf_analyzer, progress=progress)


def tritons_of(pid: int) -> set[str]:
    """Shared memory and programs of Tritons that a process has run, and that are left."""
    found = {path.name for path in Path("/dev/shm").glob(f"tidegate_tune_{pid}_*")}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"tidegate_tune_{pid}_".encode() in path.read_bytes():
                found.add(path.parent.name)
    return found


@pytest.mark.thorough
def test_a_sweep_finds_and_writes_what_serves_most(programs: Programs, sleeper: Path, tmp_path: Path) -> None:
    said: list[str] = []
    before = {path: path.read_bytes() for path in sleeper.rglob("*") if path.is_file()}
    plan = SweepPlan(
        instances=(1, 2), max_batches=(1, 8), concurrencies=(1, 8), window_seconds=SHORT, latency_limit_seconds=5
    )
    report = run(programs, sleeper, plan, said.append)

    assert [found.setting for found in report.measurements] == list(plan.settings())
    assert report.failures == ()
    assert len(said) == 8
    assert said[0].startswith("1/8 instances 1, max_batch_size 1, batch 1, concurrency 1: ")
    by = {(f.setting.instances, f.setting.max_batch, f.setting.concurrency): f for f in report.measurements}
    # A batch takes as long as a row, and an instance sleeps without taking part of the processor.
    assert by[1, 1, 1].inferences_per_second < 50
    assert by[2, 1, 8].inferences_per_second > 1.4 * by[1, 1, 8].inferences_per_second
    assert by[1, 8, 8].inferences_per_second > 3 * by[1, 1, 8].inferences_per_second
    for found in report.measurements:
        assert 0.02 <= found.p50_seconds <= found.p90_seconds <= found.p95_seconds <= found.p99_seconds
        assert found.memory_bytes is not None
        assert found.memory_bytes > 20 * 2**20
        assert found.gpu_memory_bytes is None
    one, two = by[1, 1, 1].memory_bytes, by[2, 1, 1].memory_bytes
    assert one is not None
    assert two is not None
    assert two > one  # another process of the Python backend, of which pages shared with other Tritons count in part

    assert report.best is not None
    assert (report.best.setting.max_batch, report.best.setting.concurrency) == (8, 8)
    target = tmp_path / "tuned.pbtxt"
    write_config(target, tuned_text(read_entry(sleeper), report))
    config = parse_config(target.read_text("utf-8"))
    assert config.max_batch_size == 8
    assert config.HasField("dynamic_batching")
    assert [group.count for group in config.instance_group] == [report.best.setting.instances]
    assert target.read_text("utf-8").startswith("# Found by `tidegate tune` with instances ")
    assert {path: path.read_bytes() for path in sleeper.rglob("*") if path.is_file()} == before
    target.replace(sleeper / "config.pbtxt")
    assert errors(check_entry(sleeper)) == []
    assert tritons_of(os.getpid()) == set()


@pytest.mark.thorough
def test_a_configuration_that_does_not_load_is_reported_and_the_others_are_measured(
    programs: Programs, tmp_path: Path
) -> None:
    entry = write_model(tmp_path, "one_only", ONE_ONLY.format(answers=True))
    report = run(programs, entry, SweepPlan(instances=(2, 1), concurrencies=(1,), window_seconds=SHORT))
    assert [found.setting.instances for found in report.measurements] == [1]
    (failure,) = report.failures
    assert failure.setting.instances == 2
    assert "there is room for one only" in failure.why
    assert tritons_of(os.getpid()) == set()


@pytest.mark.thorough
def test_where_nothing_can_be_measured_the_first_reason_is_said(programs: Programs, tmp_path: Path) -> None:
    entry = write_model(tmp_path, "one_only", ONE_ONLY.format(answers=False), "instance_group { count: 1 }\n")
    with pytest.raises(UnreachableError, match="the weights are upside down") as refused:
        run(programs, entry, SweepPlan(concurrencies=(2,), window_seconds=SHORT))
    assert "batch 1, concurrency 2" in str(refused.value)
    assert tritons_of(os.getpid()) == set()


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


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
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        names = [Path(f"/proc/{child}/comm").read_text("utf-8") for child in children.read_text("utf-8").split()]
    except OSError:
        return False
    return any(name.startswith("perf_analyzer") for name in names)
