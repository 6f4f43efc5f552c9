"""Measures a model with the real perf_analyzer, in windows of time, and the memory that its Triton takes meanwhile."""

import csv
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import UnreachableError, UsageError
from .plan import Measurement, Setting, SweepPlan
from .server import Running, find, opened

_EVERY_SECONDS: Final = 0.25
_GPU: Final = re.compile(r"^nv_gpu_memory_used_bytes(?:\{[^}]*\})? ([0-9.eE+]+)$", re.MULTILINE)
STABILITY_PERCENT: Final = 10
_ANY_STABILITY: Final = 999
_LONGER_WINDOWS: Final = (1, 4, 16)  # How much longer the windows get where a request takes longer than one.
_MARGIN_SECONDS: Final = 60
_UNSTABLE: Final = "Failed to obtain stable measurement"
_TOO_SHORT: Final = "Please use a larger time window"
_NOISE: Final = re.compile(r"^(WARNING|Thread \[\d+\] had error|Failed to maintain requested inference load)")


class LoadError(UnreachableError):
    """A setting that could not be measured."""


def find_perf_analyzer(program: str | Path | None) -> Path:
    """Return perf_analyzer: the one that is named, else the one on the PATH; raises UsageError without one."""
    do = "name it with --perf-analyzer; it comes with Triton's SDK image, and with `pip install perf-analyzer` (Linux)"
    return find(program or "perf_analyzer", "tune measures with Triton's own load generator", do)


def measure(program: Path, running: Running, setting: Setting, plan: SweepPlan, folder: Path) -> Measurement:
    """Call a model until three windows agree, else take three as they are; LoadError has what perf_analyzer says."""
    said, report = "", folder / "perf_analyzer.csv"
    for longer in _LONGER_WINDOWS:
        for stability in (STABILITY_PERCENT, _ANY_STABILITY):
            report.unlink(missing_ok=True)
            seconds = plan.window_seconds * longer
            command = _command(program, running, setting, plan, seconds, stability)
            with watched(running.group, running.address.metrics) as peak:
                code, said = _run([*command, "-f", str(report)], folder, plan.windows * seconds * 3 + _MARGIN_SECONDS)
            if code == 0 and report.is_file():
                return Measurement(
                    setting=setting,
                    memory_bytes=peak.host,
                    gpu_memory_bytes=peak.gpu,
                    stable=stability == STABILITY_PERCENT,
                    **_read(report),
                )
            if _UNSTABLE not in said:
                break
        if _TOO_SHORT not in said and _UNSTABLE not in said:
            break
    raise LoadError(_why(said))


def _command(
    program: Path, running: Running, setting: Setting, plan: SweepPlan, seconds: float, stability: int
) -> list[str]:
    command = [
        str(program), "-m", running.config.name, "-u", running.address.where, "-i", running.address.protocol,
        "-b", str(setting.batch), "--concurrency-range", str(setting.concurrency),
        # Never --request-count, nor windows of a number of requests: with those it hangs now and then.
        "--measurement-interval", str(round(seconds * 1000)), "--max-trials", str(plan.windows),
        "--stability-percentage", str(stability),
    ]  # fmt: skip
    if running.config.model_transaction_policy.decoupled:
        command.append("--streaming")
    for name, dims in plan.shapes.items():
        command += ["--shape", f"{name}:{','.join(map(str, dims))}"]
    if plan.input_data is not None:
        command += ["--input-data", str(plan.input_data.absolute())]
    return command


def _run(command: list[str], folder: Path, seconds: float) -> tuple[int, str]:
    # Both of its clients would go through an HTTP proxy that the environment names.
    direct = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=seconds, env=direct,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise LoadError(f"perf_analyzer did not end within {seconds:.0f} s") from None
    except OSError as error:
        raise UsageError(f"cannot be run: {error.strerror}", where=command[0]) from None
    return done.returncode, f"{done.stdout}\n{done.stderr}"


def _read(report: Path) -> dict[str, float]:
    """Return the figures of a Measurement; latencies stand in microseconds in the report."""
    with report.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    try:
        (row,) = rows
        latencies = {f"p{each}_seconds": float(row[f"p{each} latency"]) / 1e6 for each in (50, 90, 95, 99)}
        return {"inferences_per_second": float(row["Inferences/Second"]), **latencies}
    except (KeyError, ValueError):
        what = "perf_analyzer's report is not in the form of the versions that are known (2.41–2.60)"
        raise LoadError(what) from None


def _why(said: str) -> str:
    """Return the lines that say what went wrong, without settings and what is said of every thread."""
    lines = [line.strip() for line in said.splitlines()]
    threads = [line.partition("had error: ")[2] for line in lines if "] had error: " in line]
    errors = [line for line in lines if re.search("error|fail|unable|invalid|larger", line, re.IGNORECASE)]
    found = threads or [line for line in errors if not _NOISE.match(line)] or [line for line in lines if line][-3:]
    return "; ".join(dict.fromkeys(found[:3])) or "perf_analyzer ended without a word"


@dataclass
class Peak:
    """The most that was seen, in bytes; None where nothing tells."""

    host: int | None = None
    gpu: int | None = None

    def see(self, host: int | None, gpu: int | None) -> None:
        """Take in a reading in bytes; the highest counts."""
        self.host = max((each for each in (self.host, host) if each is not None), default=None)
        self.gpu = max((each for each in (self.gpu, gpu) if each is not None), default=None)


@contextmanager
def watched(group: int | None, metrics: str | None) -> Iterator[Peak]:
    """Look at the memory of a process group, and of the GPUs that a Triton tells of, until the block ends."""
    peak, over = Peak(), threading.Event()

    def look() -> None:
        while True:
            peak.see(host_bytes(group) if group is not None else None, gpu_bytes(metrics) if metrics else None)
            if over.wait(_EVERY_SECONDS):
                return

    thread = threading.Thread(target=look, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def host_bytes(group: int) -> int | None:
    """Return the RAM of a process group, pages that processes share counted in part; None where Linux does not tell.

    That is the sum of what `/proc/<pid>/smaps_rollup` calls Pss.
    """
    found = None
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            if int(stat.read_text("utf-8", errors="replace").rpartition(")")[2].split()[2]) != group:
                continue
            for line in stat.with_name("smaps_rollup").read_text("utf-8").splitlines():
                if line.startswith("Pss:"):
                    found = (found or 0) + int(line.split()[1]) * 1024
    return found


def gpu_bytes(metrics: str, *, needed: bool = False) -> int | None:
    """Return the memory in use on all GPUs that metrics tell of; raises UnreachableError where they are needed."""
    try:
        with opened(metrics, 2) as answer:
            values = [float(value) for value in _GPU.findall(answer.read().decode(errors="replace"))]
    except (OSError, ValueError) as error:
        if not needed:
            return None
        do = "check --metrics-url, such as http://localhost:8002/metrics"
        raise UnreachableError("the metrics cannot be read", why=str(error), do=do) from None
    return round(sum(values)) if values else None
