"""Measures a model with the real perf_analyzer, in windows of time."""

import csv
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import UnreachableError, UsageError
from .plan import Plan
from .results import Setting
from .server import Address, Described

PROGRAM: Final = "perf_analyzer"
STABILITY_PERCENT: Final = 10
_ANY_STABILITY: Final = 999
_LONGER_WINDOWS: Final = (1, 4, 16)
"""How much longer the windows get where a request takes longer than one."""
_MARGIN_SECONDS: Final = 60
_UNSTABLE: Final = "Failed to obtain stable measurement"
_TOO_SHORT: Final = "Please use a larger time window"
_NOISE: Final = re.compile(r"^(WARNING|Thread \[\d+\] had error|Failed to maintain requested inference load)")


@dataclass(frozen=True)
class Reading:
    """What perf_analyzer read: rows a second, and percentiles of the latency in seconds."""

    inferences_per_second: float
    p50: float
    p90: float
    p95: float
    p99: float
    stable: bool


class LoadError(UnreachableError):
    """A setting that could not be measured."""


def find(program: str | Path | None) -> Path:
    """Return perf_analyzer: the one that is named, else the one on the PATH; raises UsageError without one."""
    found = shutil.which(str(program or PROGRAM))
    if found is None:
        raise UsageError(
            f"there is no program {program or PROGRAM}",
            why="tune measures with Triton's own load generator",
            do="name it with --perf-analyzer; it comes with Triton's SDK image, and with `pip install perf-analyzer` "
            "(Linux)",
        )
    return Path(found).absolute()


def measure(program: Path, server: Address, model: Described, setting: Setting, plan: Plan, folder: Path) -> Reading:
    """Call a model as a setting says until three windows agree; raises LoadError with what perf_analyzer says.

    Where they never agree, three are taken as they are, and the reading says so.
    """
    said = ""
    for longer in _LONGER_WINDOWS:
        said = ""
        for stability in (STABILITY_PERCENT, _ANY_STABILITY):
            report = folder / "perf_analyzer.csv"
            report.unlink(missing_ok=True)
            seconds = plan.window_seconds * longer
            command = _command(program, server, model, setting, plan, seconds, stability)
            code, said = _run([*command, "-f", str(report)], folder, plan.windows * seconds * 3 + _MARGIN_SECONDS)
            if code == 0 and report.is_file():
                return _read(report, stable=stability == STABILITY_PERCENT)
            if _UNSTABLE not in said:
                break
        if _TOO_SHORT not in said and _UNSTABLE not in said:
            break
    raise LoadError(_why(said))


def _command(
    program: Path, server: Address, model: Described, setting: Setting, plan: Plan, seconds: float, stability: int
) -> list[str]:
    command = [
        str(program), "-m", model.name, "-u", server.where, "-i", server.protocol,
        "-b", str(setting.batch), "--concurrency-range", str(setting.concurrency),
        # Never --request-count, nor windows of a number of requests: with those it hangs now and then.
        "--measurement-interval", str(round(seconds * 1000)), "--max-trials", str(plan.windows),
        "--stability-percentage", str(stability),
    ]  # fmt: skip
    if model.decoupled:
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


def _read(report: Path, *, stable: bool) -> Reading:
    with report.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    try:
        (row,) = rows
        micros = [float(row[f"p{percent} latency"]) for percent in (50, 90, 95, 99)]
        p50, p90, p95, p99 = (each / 1e6 for each in micros)
        return Reading(float(row["Inferences/Second"]), p50, p90, p95, p99, stable)
    except (KeyError, ValueError):
        raise LoadError(
            "perf_analyzer's report is not in the form of the versions that are known (2.41–2.60)"
        ) from None


def _why(said: str) -> str:
    """Return the lines that say what went wrong, without settings and what is said of every thread."""
    lines = [line.strip() for line in said.splitlines()]
    threads = [line.partition("had error: ")[2] for line in lines if "] had error: " in line]
    errors = [line for line in lines if re.search("error|fail|unable|invalid|larger", line, re.IGNORECASE)]
    found = threads or [line for line in errors if not _NOISE.match(line)] or [line for line in lines if line][-3:]
    return "; ".join(dict.fromkeys(found[:3])) or "perf_analyzer ended without a word"
