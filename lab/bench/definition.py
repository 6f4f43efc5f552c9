"""How loading, validating, resolving, evaluating and writing grow with a definition: `python -m lab.bench.definition`.

A definition has so many data planes like the reference's last one. Every size has its turn in every run, and medians
count. Ratios are costs *per object* against those of the smallest definition: 1 means that the work grows as the
definition does.
"""

import argparse
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import yaml

from cli.__main__ import collect_rarely
from components import Environment
from components.evaluate import evaluate
from rollout import output
from rollout.render import rendered
from stacks.command import ExitStatus
from stacks.images_lock import ImagesLock
from stacks.load import load
from stacks.resolve import resolve
from stacks.validate import validate

from . import report
from .report import Figures, Goal, positive, say, turns

ROOT = Path(__file__).resolve().parents[2]
CHECK = "tidegate check"
STEPS = ("load", "validate", "resolve", "evaluate", "write")
Sample = Mapping[str, float]
"""Seconds of each of STEPS and of CHECK, and how many objects came out."""


def definition_text(planes: int) -> str:
    """Return the YAML of a definition with this many data planes, each in a cluster of its own."""
    tree = load(ROOT / "stacks" / "inference.yaml").tree
    for environment in tree["environments"]:
        environment.pop("rollout", None)  # it names a canary
    *_, plane = tree["dataPlanes"]
    tree["dataPlanes"] = [
        plane | {"name": f"plane-{number}", "context": f"cluster-{number}"} for number in range(planes)
    ]
    return yaml.safe_dump(tree, sort_keys=False)


def render_once(definition: Path, folder: Path) -> dict[str, float]:
    """Do every step once; return the processor seconds of each, and how many objects came out."""
    gc.collect()
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
    output.write(folder, output.new_index(checked.file, texts, {}), texts, (), ExitStatus())
    clock.append(time.process_time())
    seconds = [end - begin for begin, end in pairwise(clock)]
    return dict(zip(STEPS, seconds, strict=True)) | {"objects": sum(map(len, evaluated.values()))}


def measure(sizes: Sequence[int], runs: int) -> Figures:
    """Measure definitions of these sizes, each in this many runs after one that warms caches up."""
    collect_rarely()  # as `tidegate` does
    samples: dict[int, list[Sample]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for run, text in turns([*map(str, sizes)], runs):
            say(f"run {run + 1} of {runs}: {text} data planes …")
            file, size = folder / f"{text}.yaml", int(text)
            file.write_text(definition_text(size), "utf-8")
            steps = render_once(file, folder / f"rendered-{size}-{run}")
            if run >= 0:
                begin = time.perf_counter()
                command = [sys.executable, "-m", "cli", "check", str(file)]
                subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
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
        what = f"{size} data planes, {medians['objects']:.0f} objects"
        found.add(what, " · ".join([*words, f"{CHECK} {medians[CHECK]:.2f} s"]))
        found.figures |= {f"{step}_per_object_{size}": ratio for step, ratio in ratios.items()}
        found.figures[f"check_seconds_{size}"] = medians[CHECK]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and last one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.definition", description=__doc__)
    parser.add_argument("--planes", type=_sizes, default=(1, 10, 50), help="numbers of data planes (default: 1,10,50)")
    parser.add_argument("--runs", type=positive, default=3, help="turns of each size (default: 3)")
    options = parser.parse_args(arguments)
    about = "Steps in processor seconds, × is the cost per object against the smallest definition"
    found = {"definition": measure(options.planes, options.runs)}
    title = f"Definitions by their data planes; medians of {options.runs}"
    report.print_all(title, about, goals(options.planes), found)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive(part) for part in text.split(",")}))


if __name__ == "__main__":
    main()
