"""How fast stacks come up on a real control plane, each against a peer in the same run: `python -m lab.bench.iac`.

- `up` with each engine that is here, against `kubectl apply --server-side` and waiting for the same objects; a second
  `up`, which changes nothing, against the first. The stack is the reference's prod-east.
- Our rendering of that stack to YAML against `helm template` of the chart with its values; both as processes.
- A rollout over six data planes, each a control plane of its own on this machine, in which every plane changes: planes
  of a wave side by side against one after the other. Waves are of 1, 2 and 3 planes, so twice as fast is the most.

Everything is done several times, by turns; medians count. Ratios are ours / the peer's: 1 is as fast as the peer.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from charts import CHART, values_of
from lab import tools
from stacks.resolve import resolve
from stacks.stack import Stack

from .planes import ROOT, Planes, checkout, roll, running, text_of

REFERENCE = ROOT / "stacks" / "inference.yaml"
STACK = "prod-east"
SIX_PLANES = ROOT / "tests" / "definitions" / "six-data-planes.yaml"
ENVIRONMENT = "prod"


@dataclass(frozen=True)
class Measured:
    """How long something took, each time."""

    what: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The time that counts."""
        return statistics.median(self.seconds)


Found = Mapping[str, Measured]


def measure_engines(runs: int, folder: Path) -> dict[str, Measured]:
    """Measure kubectl, every engine and rendering on one control plane."""
    seconds: dict[str, list[float]] = {}
    with running(REFERENCE, [STACK], folder) as planes:
        stack = next(stack for stack in planes.definition.stacks if stack.name == STACK)
        engines = {"helm": ROOT} | ({"pulumi": checkout(folder)} if shutil.which("pulumi") else {})
        if "pulumi" not in engines:
            print("NOT MEASURED: Pulumi is not on the PATH.", file=sys.stderr)
        values = _values_file(planes, stack)
        for run in range(runs):
            _say(f"run {run + 1} of {runs}: kubectl …")
            seconds.setdefault("kubectl", []).append(planes.apply(stack))
            planes.clear(stack)
            for engine, root in engines.items():
                _say(f"run {run + 1} of {runs}: {engine} …")
                seconds.setdefault(f"{engine} up", []).append(planes.up(stack, engine, root))
                seconds.setdefault(f"{engine} second up", []).append(planes.up(stack, engine, root))
                _take_down(planes, stack, engine, root)
            _say(f"run {run + 1} of {runs}: rendering …")
            out = folder / f"rendered-{run}"
            command = (sys.executable, "-m", "rollout", "up", planes.definition.file, "--stack", STACK, "--out", out)
            seconds.setdefault("render", []).append(planes.run(command))
            template = (
                tools.path("helm"),
                "template",
                STACK,
                CHART,
                "--namespace",
                stack.namespace,
                "--values",
                values,
            )
            seconds.setdefault("helm template", []).append(planes.run(template))
    words = {
        "kubectl": "kubectl apply --server-side, and wait",
        "render": f"make up STACK={STACK}, to YAML",
        "helm template": "helm template",
        **{f"{engine} {what}": f"make up CLUSTER=… ENGINE={engine}{', again' if 'second' in what else ''}"
           for engine in engines for what in ("up", "second up")},
    }  # fmt: skip
    return {name: Measured(words[name], tuple(found)) for name, found in seconds.items()}


def measure_rollouts(runs: int, folder: Path) -> dict[str, Measured]:
    """Measure rollouts over six data planes; in each, the proxy of every plane gets another number of replicas."""
    found: dict[str, list[float]] = {"parallel": [], "serial": []}
    replicas = 2
    with running(SIX_PLANES, None, folder) as planes:
        file = Path(planes.definition.file)
        original = file.read_text("utf-8")
        _say("the first rollout, which makes everything …")
        roll(planes, ENVIRONMENT, file, "helm")
        for run in range(runs):
            for way, most in (("parallel", 6), ("serial", 1)):
                _say(f"rollout {run + 1} of {runs}, {way} …")
                replicas = 5 - replicas
                file.write_text(original, "utf-8")
                order = f"- {{name: {ENVIRONMENT}, rollout: {{maxParallel: {most}}}, "
                changes = {f"- {{name: {ENVIRONMENT}, ": order, "proxy:\n": f"proxy:\n  replicas: {replicas}\n"}
                file.write_text(text_of(file, changes), "utf-8")
                found[way].append(roll(planes, ENVIRONMENT, file, "helm"))
    words = {"parallel": "make rollout, planes of a wave side by side", "serial": "make rollout, plane after plane"}
    return {way: Measured(words[way], tuple(seconds)) for way, seconds in found.items()}


def ratios(found: Found) -> dict[str, float | None]:
    """Return what the last line says."""

    def ratio(one: str, other: str) -> float | None:
        return round(found[one].median / found[other].median, 3) if one in found and other in found else None

    return {
        "helm_up_vs_kubectl": ratio("helm up", "kubectl"),
        "pulumi_up_vs_kubectl": ratio("pulumi up", "kubectl"),
        "noop_vs_up": ratio("helm second up", "helm up"),
        "parallel_rollout_speedup": ratio("serial", "parallel"),
        "render_vs_helm_template": ratio("render", "helm template"),
    }


def table(found: Found) -> Table:
    """Return everything as a table for people."""
    against = {
        "helm up": "kubectl",
        "helm second up": "helm up",
        "pulumi up": "kubectl",
        "pulumi second up": "pulumi up",
        "render": "helm template",
        "parallel": "serial",
    }
    about = f"{STACK} of {REFERENCE.name} on one control plane; six of {SIX_PLANES.name} on a control plane each"
    made = Table(title="Engines and rollouts on real control planes with simulated nodes", caption=about)
    made.add_column("what")
    for heading in ("median", "min – max", "times", "ratio"):
        made.add_column(heading, justify="right", no_wrap=True)
    for name, measured in found.items():
        peer = found.get(against.get(name, ""))
        ratio = f"× {measured.median / peer.median:.2f} of {against[name]}" if peer else ""
        spread = f"{min(measured.seconds):.2f} – {max(measured.seconds):.2f} s"
        made.add_row(measured.what, f"{measured.median:.2f} s", spread, str(len(measured.seconds)), ratio)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and last one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.iac", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=_positive, default=3, help="times that everything is done (default: 3)")
    parser.add_argument("--rollouts", type=_positive, default=3, help="rollouts of each way (default: 3)")
    options = parser.parse_args(arguments)
    # Short, because Unix sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        folder = Path(name)
        for part in ("engines", "rollouts"):
            (folder / part).mkdir()
        found = measure_engines(options.runs, folder / "engines")
        found |= measure_rollouts(options.rollouts, folder / "rollouts")
    Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    print(json.dumps(ratios(found)))


def _values_file(planes: Planes, stack: Stack) -> Path:
    path = planes.folder / "values.yaml"
    path.write_text(yaml.safe_dump(values_of(resolve(stack, planes.definition.lock))), "utf-8")
    return path


def _take_down(planes: Planes, stack: Stack, engine: str, root: Path) -> None:
    """Take a stack down with its engine, so that its records go too, and then what stays of it."""
    where = ("--cluster", next(iter(planes.clusters.values())).context, "--stack", stack.name, "--engine", engine)
    planes.run((sys.executable, "-m", "rollout", "down", planes.definition.file, *where, "--yes"), root=root)
    planes.clear(stack)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(f"{text} is less than 1")
    return number


if __name__ == "__main__":
    main()
