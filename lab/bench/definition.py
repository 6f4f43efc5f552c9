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
from itertools import pairwise
from pathlib import Path

from cli.__main__ import collect_rarely
from components import Environment
from components.evaluate import evaluate
from rollout import output
from rollout.render import rendered
from stacks.command import Outcome
from stacks.images_lock import ImagesLock
from stacks.load import load
from stacks.resolve import resolve
from stacks.validate import validate

from . import report
from .made import ENVIRONMENTS, POOLS, definition_text
from .report import Figures, Goal, positive, say

ROOT = Path(__file__).resolve().parents[2]
CHECK = "tidegate check"
STEPS = ("load", "validate", "resolve", "evaluate", "write")
REPEATED = """
import json, pathlib, sys
from lab.bench.definition import repeated
print(json.dumps(repeated(pathlib.Path(sys.argv[1]), float(sys.argv[2]))))
"""
Sample = Mapping[str, float]
"""Of one process: seconds of each of STEPS and of CHECK, and how many stacks and objects came out."""


def render_once(definition: Path, folder: Path) -> dict[str, float]:
    """Do every step once; return the seconds of each, and how many stacks and objects came out."""
    clock = [time.process_time()]
    document = load(definition)
    clock.append(time.process_time())
    checked = validate(document, ImagesLock())
    clock.append(time.process_time())
    resolved = {stack.name: resolve(stack, checked.lock) for stack in checked.stacks}
    clock.append(time.process_time())
    evaluated = {name: evaluate(lambda of=(name, args): Environment(*of)) for name, args in resolved.items()}  # type: ignore[misc]
    clock.append(time.process_time())
    texts = [rendered(name, objects, checked.file) for name, objects in evaluated.items()]
    output.write(folder, output.new_index(checked.file, texts, {}), texts, (), Outcome())
    clock.append(time.process_time())
    seconds = [end - begin for begin, end in pairwise(clock)]
    counts = {"stacks": len(resolved), "objects": sum(map(len, evaluated.values()))}
    return dict(zip(STEPS, seconds, strict=True)) | counts


def repeated(definition: Path, seconds: float) -> Sample:
    """Render a definition for so long, in this process; return the mean of each step.

    Garbage collections fall on some repetitions and not on others, and must be paid by all. What only the first has to
    pay (imports, caches) is paid before, on the smallest definition. Seconds are the processor's, because other
    programs take their turns.
    """
    collect_rarely()  # as `tidegate up` does
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = folder / "small.yaml"
        small.write_text(definition_text(1))
        render_once(small, folder / "small")
        passes: list[dict[str, float]] = []
        end = time.perf_counter() + seconds
        while not passes or time.perf_counter() < end:
            passes.append(render_once(definition, folder / f"rendered-{len(passes)}"))
    return {key: statistics.mean(each[key] for each in passes) for key in passes[0]}


def measure(sizes: Sequence[int], runs: int, least_seconds: float) -> Figures:
    """Measure definitions of these sizes, each in this many processes."""
    samples: dict[int, list[Sample]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as folder:
        files = {size: Path(folder) / f"{size}-planes" / "inference.yaml" for size in sizes}
        for size, file in files.items():
            file.parent.mkdir()
            file.write_text(definition_text(size), encoding="utf-8")
        for run in range(runs):
            for size, file in files.items():
                say(f"run {run + 1} of {runs}: {size} data planes …")
                steps = json.loads(_python("-c", REPEATED, str(file), str(least_seconds)))
                begin = time.perf_counter()
                _python("-m", "cli", "check", str(file))
                samples[size].append(steps | {CHECK: time.perf_counter() - begin})
    return compared(samples)


def goals(sizes: Sequence[int]) -> dict[str, Goal]:
    """Return the keys of the last line: a ratio of each step for all sizes but the smallest, and a check's seconds."""
    smallest, *others = sizes
    ratios = {
        f"{step}_per_object_{size}": Goal(f"{step}: cost per object of {size} data planes, against {smallest}")
        for step in STEPS
        for size in others
    }
    return ratios | {f"check_seconds_{sizes[-1]}": Goal(f"{CHECK} of {sizes[-1]} data planes, seconds by the clock")}


def compared(samples: Mapping[int, Sequence[Sample]]) -> Figures:
    """Return the medians of definitions by their sizes, each held against the first."""
    found, smallest = Figures(), dict[str, float]()
    for size, of_size in samples.items():
        medians = {key: statistics.median(each[key] for each in of_size) for key in of_size[0]}
        costs = {step: medians[step] / medians["objects"] for step in STEPS}
        smallest = smallest or costs
        ratios = {step: costs[step] / smallest[step] for step in STEPS}
        words = [f"{step} {medians[step]:.3f} s (× {ratios[step]:.2f})" for step in STEPS]
        what = f"{size} data planes, {medians['stacks']:.0f} stacks, {medians['objects']:.0f} objects"
        found.add(what, " · ".join([*words, f"{CHECK} {medians[CHECK]:.2f} s"]))
        found.figures |= {f"{step}_per_object_{size}": ratio for step, ratio in ratios.items()}
        found.figures[f"check_seconds_{size}"] = medians[CHECK]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and last one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.definition", description=__doc__)
    parser.add_argument("--planes", type=_sizes, default=(1, 10, 50), help="numbers of data planes (default: 1,10,50)")
    parser.add_argument("--runs", type=positive, default=3, help="processes for each size (default: 3)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="in each process, repeat for at least this long (default: 1)"
    )
    options = parser.parse_args(arguments)
    title = f"Data planes × {ENVIRONMENTS} environments × {POOLS} pools; medians of {options.runs} fresh processes each"
    about = "Steps in processor seconds, × is the cost per object against the smallest definition"
    found = {"definition": measure(options.planes, options.runs, options.seconds)}
    report.print_all(title, about, goals(options.planes), found)


def _python(*arguments: str) -> str:
    """Run Python in the repository, and return what it printed; what it complains about is passed on."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "contracts")])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        say(done.stdout)
        raise SystemExit(f"python {' '.join(arguments)} failed with exit code {done.returncode}")
    return done.stdout


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive(part) for part in text.split(",")}))


if __name__ == "__main__":
    main()
