"""How loading, validating, resolving, evaluating and writing grow with a definition: `python -m lab.bench.definition`.

Definitions of several sizes are made, each with that many data planes × two environments × ten pools. Every measurement
runs in a fresh process, the sizes by turns, and medians count. Ratios are costs *per object* against those of the
smallest definition: 1 means that the work grows as the definition does.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .made import ENVIRONMENTS, POOLS, definition_text
from .worker import STEPS

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Measured:
    """What was found out about a definition of one size: medians over all processes."""

    planes: int
    stacks: int
    objects: int
    seconds: Mapping[str, float]
    """Processor seconds of each step."""
    check: float
    """Seconds of the whole process of `make check`, by the clock on the wall."""

    def per_object(self, step: str) -> float:
        """Return the seconds that a step takes for each object."""
        return self.seconds[step] / self.objects


def measure(sizes: Sequence[int], runs: int, least_seconds: float) -> list[Measured]:
    """Measure definitions of these sizes, each in this many processes."""
    found: dict[int, list[dict[str, object]]] = {size: [] for size in sizes}
    checks: dict[int, list[float]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as folder:
        files = {size: Path(folder) / f"{size}-planes" / "inference.yaml" for size in sizes}
        for size, file in files.items():
            file.parent.mkdir()
            file.write_text(definition_text(size), encoding="utf-8")
        for run in range(runs):
            for size, file in files.items():
                print(f"run {run + 1} of {runs}: {size} data planes …", file=sys.stderr, flush=True)
                found[size].append(json.loads(_python("-m", "lab.bench.worker", str(file), str(least_seconds))))
                begin = time.perf_counter()
                _python("-m", "rollout", "check", str(file))
                checks[size].append(time.perf_counter() - begin)
    return [_medians(size, found[size], checks[size]) for size in sizes]


def ratios(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the cost of each step per object against the smallest definition, and the seconds of `make check`."""
    smallest, *others = measured
    result = {
        f"{step}_per_object_{other.planes}": round(other.per_object(step) / smallest.per_object(step), 3)
        for step in STEPS
        for other in others
    }
    return result | {f"check_seconds_{each.planes}": round(each.check, 3) for each in measured[-1:]}


def table(measured: Sequence[Measured], runs: int) -> Table:
    """Return everything as a table for people."""
    title = f"Data planes × {ENVIRONMENTS} environments × {POOLS} pools; medians of {runs} fresh processes each"
    about = (
        "Steps in processor seconds, × is the cost per object against the smallest definition; make check by the clock"
    )
    made = Table(title=title, caption=about)
    for heading in ("data planes", "stacks", "objects", *STEPS, "make check"):
        made.add_column(heading, justify="right", no_wrap=True)
    for each in measured:
        cells = [
            f"{each.seconds[step]:.3f} s\n× {each.per_object(step) / measured[0].per_object(step):.2f}"
            for step in STEPS
        ]
        made.add_row(str(each.planes), str(each.stacks), str(each.objects), *cells, f"{each.check:.2f} s")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and last one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.definition", description=__doc__)
    parser.add_argument("--planes", type=_sizes, default=(1, 10, 50), help="numbers of data planes (default: 1,10,50)")
    parser.add_argument("--runs", type=_positive, default=3, help="processes for each size (default: 3)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="in each process, repeat for at least this long (default: 1)"
    )
    options = parser.parse_args(arguments)
    measured = measure(options.planes, options.runs, options.seconds)
    Console(width=None if sys.stdout.isatty() else 120).print(table(measured, options.runs))
    print(json.dumps(ratios(measured)))


def _medians(size: int, found: Sequence[Mapping[str, object]], checks: Sequence[float]) -> Measured:
    seconds: dict[str, float] = {}
    for step in STEPS:
        times = []
        for each in found:
            in_run = each["seconds"]
            assert isinstance(in_run, dict)
            times.append(float(in_run[step]))
        seconds[step] = statistics.median(times)
    stacks, objects = found[0]["stacks"], found[0]["objects"]
    assert isinstance(stacks, int)
    assert isinstance(objects, int)
    return Measured(size, stacks, objects, seconds, statistics.median(checks))


def _python(*arguments: str) -> str:
    """Run Python in the repository, and return what it printed; what it complains about is passed on."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "contracts")])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(f"python {' '.join(arguments)} failed with exit code {done.returncode}")
    return done.stdout


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({_positive(part) for part in text.split(",")}))


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(f"{text} is less than 1")
    return number


if __name__ == "__main__":
    main()
