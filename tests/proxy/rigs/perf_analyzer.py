import csv
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.local_plane.process import pinned
from lab.local_plane.triton import installed

SECONDS = 180.0


@dataclass(frozen=True)
class Measured:
    per_second: float
    p99_seconds: float
    output: str


class PerfAnalyzerError(Exception):
    """The program failed. The text has its output."""


def perf_analyzer(
    folder: Path,
    protocol: str,
    url: str,
    model: str,
    *options: str,
    token: str = "",
    concurrency: int = 32,
    core: int | None = None,
    window_seconds: float = 0.5,
    most_windows: int = 50,
) -> Measured:
    """Run it against a server until three windows had responses, however uneven. Raises PerfAnalyzerError.

    `protocol` is http or grpc. It gets windows because with --request-count it hangs sometimes, even directly in front
    of Triton.
    """
    have = installed()
    report = folder / f"perf-analyzer-{protocol}-{model}.csv"
    report.unlink(missing_ok=True)
    command = [have.perf_analyzer, "-m", model, "-i", protocol, "-u", url, "-f", report, "--percentile", "99", *options]
    command += ["--concurrency-range", str(concurrency), "--stability-percentage", "999"]
    command += ["--measurement-interval", f"{window_seconds * 1000:.0f}", "--max-trials", str(most_windows)]
    if token:
        # According to its help gRPC calls ignore this option, but they do not.
        command += ["-H", f"authorization:Bearer {token}"]
    environment = os.environ | have.variables | {"LD_LIBRARY_PATH": str(have.libraries)}
    with pinned(core):
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=SECONDS, env=environment)
    output = done.stdout + done.stderr
    if done.returncode or not report.exists():
        raise PerfAnalyzerError(f"perf_analyzer ended with {done.returncode}:\n{output[:2000]}\n…\n{output[-1000:]}")
    with report.open(newline="") as file:
        (row,) = csv.DictReader(file)
    return Measured(float(row["Inferences/Second"]), float(row["p99 latency"]) / 1e6, output)
