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
from itertools import pairwise
from pathlib import Path

from components import Environment
from components.evaluate import evaluate
from rollout import output
from rollout.render import rendered
from stacks.command import Outcome
from stacks.images_lock import ImagesLock
from stacks.load import load
from stacks.resolve import resolve
from stacks.validate import validate

from .made import definition_text

STEPS = ("load", "validate", "resolve", "evaluate", "write")


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
    with output.locked(folder):
        output.write(folder, output.new_index(checked.file, texts, {}), texts, (), Outcome())
    clock.append(time.process_time())
    seconds = [end - begin for begin, end in pairwise(clock)]
    counts = {"stacks": len(resolved), "objects": sum(map(len, evaluated.values()))}
    return dict(zip(STEPS, seconds, strict=True)) | counts


def main(definition: Path, seconds: float) -> None:
    """Measure one definition."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = folder / "small.yaml"
        small.write_text(definition_text(1))
        render_once(small, folder / "small")
        passes: list[dict[str, float]] = []
        end = time.perf_counter() + seconds
        while not passes or time.perf_counter() < end:
            passes.append(render_once(definition, folder / f"rendered-{len(passes)}"))
    print(json.dumps({key: statistics.mean(each[key] for each in passes) for key in passes[0]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
