"""`python -m lab.bench.worker <definition> <seconds>`: times each step of a rendering, in a process of its own.

Prints one line of JSON. All steps are repeated until the time is used up, and the mean of each counts: garbage
collections fall on some repetitions and not on others, and must be paid by all. What only the first has to pay
(imports, caches) is paid before, on the smallest definition. Seconds are the processor's, because other programs take
their turns.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from components import Environment, EnvironmentArgs, evaluate
from components.evaluate import KubernetesObject
from rollout import output
from rollout.render import rendered
from stacks.command import Outcome
from stacks.images_lock import ImagesLock
from stacks.load import load
from stacks.resolve import resolve
from stacks.validate import validate

from .made import definition_text

Made = TypeVar("Made")
STEPS = ("load", "validate", "resolve", "evaluate", "write")


class Stopwatch:
    """Takes the time of steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, step: str, work: Callable[[], Made]) -> Made:
        """Do some work and note how long it took."""
        begin = time.process_time()
        made = work()
        self.seconds[step] = time.process_time() - begin
        return made


def render_once(definition: Path, folder: Path) -> tuple[dict[str, float], int, int]:
    """Do every step once; return the seconds of each, and how many stacks and objects came out."""
    watch = Stopwatch()
    document = watch.time("load", lambda: load(definition))
    checked = watch.time("validate", lambda: validate(document, ImagesLock()))
    resolved = watch.time("resolve", lambda: [(stack.name, resolve(stack, checked.lock)) for stack in checked.stacks])
    evaluated = watch.time("evaluate", lambda: [(name, _evaluate(name, args)) for name, args in resolved])

    def write() -> None:
        texts = [rendered(name, objects, checked.file) for name, objects in evaluated]
        index = output.new_index(checked.file, texts, {})
        with output.locked(folder):
            output.write(folder, index, texts, (), Outcome())

    watch.time("write", write)
    return watch.seconds, len(resolved), sum(len(objects) for _, objects in evaluated)


def _evaluate(name: str, args: EnvironmentArgs) -> list[KubernetesObject]:
    return evaluate(lambda: Environment(name, args))


def main(definition: Path, seconds: float) -> None:
    """Measure one definition."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = folder / "small.yaml"
        small.write_text(definition_text(1))
        render_once(small, folder / "small")
        passes: list[tuple[dict[str, float], int, int]] = []
        end = time.perf_counter() + seconds
        while not passes or time.perf_counter() < end:
            passes.append(render_once(definition, folder / f"rendered-{len(passes)}"))
    _, stacks, objects = passes[0]
    means = {step: statistics.mean(each[0][step] for each in passes) for step in STEPS}
    print(json.dumps({"seconds": means, "stacks": stacks, "objects": objects, "passes": len(passes)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
