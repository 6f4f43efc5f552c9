"""The speed of deployments on a real control plane, against a peer in the same run: `python -m lab.bench.iac`.

- `up` with each installed engine, against `kubectl apply --server-side` and waiting for the same objects. Also a second
  `up` without changes, against the first. The stack is the reference's prod-east.
- A rollout over six data planes, each a separate control plane on this machine. Every plane changes. Planes of a wave
  in parallel, against one after the other. A canary goes first, so the limit is three times as fast.

Everything is repeated in turns, and medians count. Ratios are ours / the peer's: 1 is as fast as the peer.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import tools
from lab.local_cluster import LocalCluster
from lab.local_cluster.nodes import nodes_of
from lab.local_cluster.stand_ins import pinned, prepare, stand_ins
from rollout import processes
from rollout.kubectl import as_list
from rollout.render import render
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from . import report
from .report import Figures, Goal, progress

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "stacks" / "inference.yaml"
STACK = "prod-east"
SIX_PLANES = ROOT / "tests" / "definitions" / "six-data-planes.yaml"
ENVIRONMENT = "prod"
RUNS = 3
RATIOS = {
    "helm_up_vs_kubectl": ("tidegate up --engine helm", "kubectl apply, and wait", "≤ 3"),
    "pulumi_up_vs_kubectl": ("tidegate up --engine pulumi", "kubectl apply, and wait", "≤ 10"),
    "noop_vs_up": ("tidegate up --engine helm, again", "tidegate up --engine helm", "≤ 0.5"),
    "pulumi_noop_vs_up": ("tidegate up --engine pulumi, again", "tidegate up --engine pulumi", "≤ 0.5"),
    "parallel_rollout_speedup": ("tidegate rollout, plane after plane", "tidegate rollout, in parallel", "≥ 2.2"),
}
"""The measured command, its peer, and the goal of their ratio."""
GOALS = {key: Goal(f"{ours}, against {peer}", goal) for key, (ours, peer, goal) in RATIOS.items()}
_SECONDS = 900
_NOT_COPIED = (".*", "__pycache__", "build", "tests", "docs", "encryptionsalt")
_TIDEGATE = (sys.executable, "-m", "cli")


@dataclass(frozen=True)
class Planes:
    """Running data planes, and the definition for them."""

    definition: Definition
    clusters: Mapping[str, LocalCluster]  # By data plane.
    folder: Path

    def objects(self, stack: Stack) -> Sequence[dict[str, Any]]:
        return render(stack, self.definition).objects

    def run(self, command: Sequence[str | Path], stdin: str = "", root: Path = ROOT) -> float:
        """Run a command on these planes, and return its seconds. End the benchmark if it fails."""
        environment = {
            "KUBECONFIG": os.pathsep.join(str(cluster.kubeconfig) for cluster in self.clusters.values()),
            "KUBECACHEDIR": str(self.folder / "kubectl-cache"),
            "KUBERC": "off",
            "PYTHONPATH": os.pathsep.join([str(root), str(root / "contracts")]),
            "PULUMI_BACKEND_URL": (self.folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
        }
        begin = time.perf_counter()
        done = processes.run([*map(str, command)], seconds=_SECONDS, stdin=stdin, cwd=root, environment=environment)
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
        return time.perf_counter() - begin

    def make(self, command: str, stack: Stack, engine: str, root: Path, *more: str) -> float:
        """Apply or remove a stack, as `tidegate up --cluster …` and `tidegate down --cluster …` do."""
        where = ("--cluster", stack.data_plane.context_name, "--stack", stack.name, "--engine", engine)
        return self.run([*_TIDEGATE, command, self.definition.file, *where, *more], root=root)

    def apply(self, stack: Stack) -> float:
        """Apply a stack with kubectl alone: server-side, then wait for its workloads."""
        kubectl = [str(tools.path("kubectl")), "--context", stack.data_plane.context_name]
        objects = self.objects(stack)
        seconds = self.run([*kubectl, "apply", "--server-side", "-f", "-"], as_list(objects))
        for item in objects:
            if item["kind"] in ("Deployment", "StatefulSet"):
                name = f"{item['kind'].lower()}/{item['metadata']['name']}"
                seconds += self.run([*kubectl, "--namespace", stack.namespace, "rollout", "status", name])
        return seconds

    def clear(self, stack: Stack) -> None:
        cluster = self.clusters[stack.data_plane.name]
        cluster.kubectl("delete", "namespace", stack.namespace, "--ignore-not-found", timeout=300)
        for item in self.objects(stack):
            if item["kind"] == "PersistentVolume":
                name = item["metadata"]["name"]
                cluster.kubectl("delete", "persistentvolume", name, "--ignore-not-found", timeout=300)


def roll(planes: Planes, environment: str, definition: Path, engine: str) -> float:
    """Roll an environment out as `tidegate rollout` does."""
    where = ("--environment", environment, "--engine", engine, "--journals", str(planes.folder / "journals"))
    return planes.run([*_TIDEGATE, "rollout", str(definition), *where])


@contextmanager
def running(definition: Path, stacks: Sequence[str] | None, folder: Path) -> Iterator[Planes]:
    """Start a control plane for each data plane of these stacks, with the definition's nodes."""
    file = pinned(definition, folder)
    read = read_definition(file)
    wanted = [stack for stack in read.stacks if stacks is None or stack.name in stacks]
    (folder / "state").mkdir(exist_ok=True)
    with ExitStack() as stack_of:
        clusters = {}
        for stack in wanted:
            plane = stack.data_plane
            nodes = nodes_of(plane, [stack])
            place = folder / "clusters" / plane.name
            place.parent.mkdir(exist_ok=True)
            cluster = LocalCluster.start(place, name=plane.context_name, nodes=nodes)
            clusters[plane.name] = stack_of.enter_context(cluster)
            prepare(cluster, render(stack, read).objects)
        yield Planes(read, clusters, folder)


def checkout(folder: Path) -> Path:
    """Return a copy of the checkout for Pulumi, which writes the configuration of stacks there."""
    root = folder / "checkout"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    (root / ".venv").symlink_to(sys.prefix)  # As make links it. Otherwise Pulumi would install one meanwhile.
    return root


def measure_engines(folder: Path) -> Figures:
    """Measure kubectl and every engine on one control plane."""
    seconds: dict[str, list[float]] = defaultdict(list)
    with running(REFERENCE, [STACK], folder) as planes:
        stack = next(stack for stack in planes.definition.stacks if stack.name == STACK)
        engines = {"helm": ROOT} | ({"pulumi": checkout(folder)} if shutil.which("pulumi") else {})
        if "pulumi" not in engines:
            progress("NOT MEASURED: Pulumi is not on the PATH.")
        for run in range(RUNS):
            progress(f"run {run + 1} of {RUNS}: kubectl …")
            seconds["kubectl apply, and wait"].append(planes.apply(stack))
            planes.clear(stack)
            for engine, root in engines.items():
                progress(f"run {run + 1} of {RUNS}: {engine} …")
                for what in (f"tidegate up --engine {engine}", f"tidegate up --engine {engine}, again"):
                    seconds[what].append(planes.make("up", stack, engine, root))
                planes.make("down", stack, engine, root, "--yes")  # This also removes the engine's records.
                planes.clear(stack)
    return compared(seconds)


def measure_rollouts(folder: Path) -> Figures:
    """Measure rollouts over six data planes. Each changes the proxy's replicas in every plane."""
    seconds: dict[str, list[float]] = defaultdict(list)
    replicas = 2
    with running(SIX_PLANES, None, folder) as planes:
        file = Path(planes.definition.file)
        original, before = file.read_text("utf-8"), f"- {{name: {ENVIRONMENT}, "
        assert before in original
        assert "proxy:\n" in original
        progress("the first rollout, which creates everything …")
        roll(planes, ENVIRONMENT, file, "helm")
        for stack in planes.definition.stacks:
            planes.clusters[stack.data_plane.name].apply(stand_ins(planes.objects(stack), in_namespaces=True))
        for run in range(RUNS):
            for way, most in (("in parallel", 6), ("plane after plane", 1)):
                progress(f"rollout {run + 1} of {RUNS}, {way} …")
                replicas = 5 - replicas
                order = f"{before}rollout: {{maxParallel: {most}}}, "
                text = original.replace(before, order).replace("proxy:\n", f"proxy:\n  replicas: {replicas}\n")
                file.write_text(text, "utf-8")
                seconds[f"tidegate rollout, {way}"].append(roll(planes, ENVIRONMENT, file, "helm"))
    return compared(seconds)


def compared(seconds: Mapping[str, Sequence[float]]) -> Figures:
    """Return medians and spreads, and the ratios of those with a peer."""
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    there = {key: pair for key, (*pair, _) in RATIOS.items() if medians.keys() >= set(pair)}
    found = Figures({key: medians[ours] / medians[peer] for key, (ours, peer) in there.items()})
    for name, each in seconds.items():
        words = f"{medians[name]:.2f} s ({min(each):.2f} – {max(each):.2f} s, {len(each)} times)"
        found.add(name, words)
    return found


def main() -> None:
    """Measure, and print the table and one line of JSON."""
    report.arguments("lab.bench.iac", __doc__).parse_args()
    about = f"{STACK} of {REFERENCE.name} on one control plane. Six planes of {SIX_PLANES.name} on a control plane each"
    # Short, because it contains Unix sockets.
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        engines, rollouts = Path(name) / "engines", Path(name) / "rollouts"
        engines.mkdir()
        rollouts.mkdir()
        parts = {"engines": lambda: measure_engines(engines), "rollouts": lambda: measure_rollouts(rollouts)}
        found = report.measure(GOALS, parts)
    report.print_all("Engines and rollouts on real control planes with simulated nodes", about, GOALS, found)


if __name__ == "__main__":
    main()
