"""How fast stacks come up on a real control plane, each against a peer in the same run: `python -m lab.bench.iac`.

- `up` with each engine that is here, against `kubectl apply --server-side` and waiting for the same objects; a second
  `up`, which changes nothing, against the first. The stack is the reference's prod-east.
- Our rendering of that stack to YAML against `helm template` of the chart with its values; both as processes.
- A rollout over six data planes, each a control plane of its own on this machine, in which every plane changes: planes
  of a wave side by side against one after the other. Waves are of 1, 2 and 3 planes, so twice as fast is the most.

Everything is done several times, by turns; medians count. Ratios are ours / the peer's: 1 is as fast as the peer.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from charts import CHART, values_of
from lab import tools
from stacks.resolve import resolve

from . import report
from .planes import ROOT, checkout, roll, running, text_of
from .report import Found, Goal, positive, say

REFERENCE = ROOT / "stacks" / "inference.yaml"
STACK = "prod-east"
SIX_PLANES = ROOT / "tests" / "definitions" / "six-data-planes.yaml"
ENVIRONMENT = "prod"
GOALS = {
    "helm_up_vs_kubectl": Goal("make up with Helm, against kubectl"),
    "pulumi_up_vs_kubectl": Goal("make up with Pulumi, against kubectl"),
    "noop_vs_up": Goal("a second make up with Helm, which changes nothing, against the first"),
    "parallel_rollout_speedup": Goal("make rollout plane after plane, against planes of a wave side by side", "≤ 2"),
    "render_vs_helm_template": Goal("make up to YAML, against helm template"),
}
RATIOS = {
    "helm_up_vs_kubectl": ("helm up", "kubectl"),
    "pulumi_up_vs_kubectl": ("pulumi up", "kubectl"),
    "noop_vs_up": ("helm second up", "helm up"),
    "parallel_rollout_speedup": ("serial", "parallel"),
    "render_vs_helm_template": ("render", "helm template"),
}
WORDS = {
    "kubectl": "kubectl apply --server-side, and wait",
    **{f"{engine} up": f"make up CLUSTER=… ENGINE={engine}" for engine in ("helm", "pulumi")},
    **{f"{engine} second up": f"make up CLUSTER=… ENGINE={engine}, again" for engine in ("helm", "pulumi")},
    "render": f"make up STACK={STACK}, to YAML",
    "parallel": "make rollout, planes of a wave side by side",
    "serial": "make rollout, plane after plane",
}


def measure_engines(runs: int, folder: Path) -> Found:
    """Measure kubectl, every engine and rendering on one control plane."""
    seconds: dict[str, list[float]] = defaultdict(list)
    with running(REFERENCE, [STACK], folder) as planes:
        stack = next(stack for stack in planes.definition.stacks if stack.name == STACK)
        engines = {"helm": ROOT} | ({"pulumi": checkout(folder)} if shutil.which("pulumi") else {})
        if "pulumi" not in engines:
            say("NOT MEASURED: Pulumi is not on the PATH.")
        values = folder / "values.yaml"
        values.write_text(yaml.safe_dump(values_of(resolve(stack, planes.definition.lock))), "utf-8")
        template = (tools.path("helm"), "template", STACK, CHART, "--namespace", stack.namespace, "--values", values)
        for run in range(runs):
            say(f"run {run + 1} of {runs}: kubectl …")
            seconds["kubectl"].append(planes.apply(stack))
            planes.clear(stack)
            for engine, root in engines.items():
                say(f"run {run + 1} of {runs}: {engine} …")
                seconds[f"{engine} up"].append(planes.up(stack, engine, root))
                seconds[f"{engine} second up"].append(planes.up(stack, engine, root))
                planes.down(stack, engine, root)
            say(f"run {run + 1} of {runs}: rendering …")
            out = folder / f"rendered-{run}"
            command = (sys.executable, "-m", "rollout", "up", planes.definition.file, "--stack", STACK, "--out", out)
            seconds["render"].append(planes.run(command))
            seconds["helm template"].append(planes.run(template))
    return compared(seconds)


def measure_rollouts(runs: int, folder: Path) -> Found:
    """Measure rollouts over six data planes; in each, the proxy of every plane gets another number of replicas."""
    seconds: dict[str, list[float]] = defaultdict(list)
    replicas = 2
    with running(SIX_PLANES, None, folder) as planes:
        file = Path(planes.definition.file)
        original = file.read_text("utf-8")
        say("the first rollout, which makes everything …")
        roll(planes, ENVIRONMENT, file, "helm")
        for run in range(runs):
            for way, most in (("parallel", 6), ("serial", 1)):
                say(f"rollout {run + 1} of {runs}, {way} …")
                replicas = 5 - replicas
                file.write_text(original, "utf-8")
                order = f"- {{name: {ENVIRONMENT}, rollout: {{maxParallel: {most}}}, "
                changes = {f"- {{name: {ENVIRONMENT}, ": order, "proxy:\n": f"proxy:\n  replicas: {replicas}\n"}
                file.write_text(text_of(file, changes), "utf-8")
                seconds[way].append(roll(planes, ENVIRONMENT, file, "helm"))
    return compared(seconds)


def compared(seconds: Mapping[str, Sequence[float]]) -> Found:
    """Return medians and spreads by what was done, and the ratios of those that have a peer there."""
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    there = {key: pair for key, pair in RATIOS.items() if medians.keys() >= set(pair)}
    found = Found({key: medians[ours] / medians[peer] for key, (ours, peer) in there.items()})
    for name, each in seconds.items():
        words = f"{medians[name]:.2f} s ({min(each):.2f} – {max(each):.2f} s, {len(each)} times)"
        found.add(WORDS.get(name, name), words)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and last one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.iac", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=positive, default=3, help="times that everything is done (default: 3)")
    parser.add_argument("--rollouts", type=positive, default=3, help="rollouts of each way (default: 3)")
    options = parser.parse_args(arguments)
    about = f"{STACK} of {REFERENCE.name} on one control plane; six of {SIX_PLANES.name} on a control plane each"
    # Short, because Unix sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        engines, rollouts = Path(name) / "engines", Path(name) / "rollouts"
        engines.mkdir()
        rollouts.mkdir()
        parts = {
            "engines": lambda: measure_engines(options.runs, engines),
            "rollouts": lambda: measure_rollouts(options.rollouts, rollouts),
        }
        found = report.measure(GOALS, parts)
    report.print_all("Engines and rollouts on real control planes with simulated nodes", about, GOALS, found)


if __name__ == "__main__":
    main()
