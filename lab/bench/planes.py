"""What `bench.iac` measures on: data planes that are real control planes here, and a definition with pinned images."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import tools
from lab.local_cluster import LocalCluster, crds
from lab.local_cluster.nodes import nodes_of
from rollout.contexts import context_of
from rollout.kubectl import as_list
from rollout.render import render
from stacks.images_lock import FILE_NAME, PinnedImage, lock_text
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 900
_NOT_COPIED = (".*", "__pycache__", "build", "tests", "docs", "encryptionsalt")


@dataclass(frozen=True)
class Planes:
    """Data planes that run, and the definition that is brought up there."""

    definition: Definition
    clusters: Mapping[str, LocalCluster]
    """By data plane."""
    folder: Path

    def objects(self, stack: Stack) -> Sequence[dict[str, Any]]:
        """Return a stack's objects."""
        return render(stack, self.definition.lock, self.definition.file).objects

    def run(self, command: Sequence[str | Path], stdin: str = "", root: Path = ROOT) -> float:
        """Run a command that finds these planes, and return how long it took; end the benchmark when it fails."""
        environment = {
            **os.environ,
            "KUBECONFIG": os.pathsep.join(str(cluster.kubeconfig) for cluster in self.clusters.values()),
            "KUBECACHEDIR": str(self.folder / "kubectl-cache"),
            "KUBERC": "off",
            "PYTHONPATH": os.pathsep.join([str(root), str(root / "contracts")]),
            "PULUMI_BACKEND_URL": (self.folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
        }
        begin = time.perf_counter()
        done = subprocess.run(
            [*map(str, command)],
            input=stdin,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
        return time.perf_counter() - begin

    def up(self, stack: Stack, engine: str, root: Path = ROOT) -> float:
        """Bring a stack up as `make up CLUSTER=…` does."""
        return self._engine("up", stack, engine, root)

    def down(self, stack: Stack, engine: str, root: Path = ROOT) -> None:
        """Take a stack down with its engine, so that its records go too, and then what stays of it."""
        self._engine("down", stack, engine, root, "--yes")
        self.clear(stack)

    def _engine(self, command: str, stack: Stack, engine: str, root: Path, *more: str) -> float:
        where = ("--cluster", context_of(stack.data_plane), "--stack", stack.name, "--engine", engine)
        return self.run([*_rollout(command), self.definition.file, *where, *more], root=root)

    def apply(self, stack: Stack) -> float:
        """Bring a stack up with kubectl alone: apply its objects server-side, and wait for its workloads."""
        kubectl = [str(tools.path("kubectl")), "--context", context_of(stack.data_plane)]
        objects = self.objects(stack)
        seconds = self.run([*kubectl, "apply", "--server-side", "-f", "-"], as_list(objects))
        for item in objects:
            if item["kind"] in ("Deployment", "StatefulSet"):
                name = f"{item['kind'].lower()}/{item['metadata']['name']}"
                seconds += self.run([*kubectl, "--namespace", stack.namespace, "rollout", "status", name])
        return seconds

    def clear(self, stack: Stack) -> None:
        """Take everything away that a stack has in its plane, its datasets too."""
        cluster = self.clusters[stack.data_plane.name]
        cluster.kubectl("delete", "namespace", stack.namespace, "--ignore-not-found", timeout=300)
        for item in self.objects(stack):
            if item["kind"] == "PersistentVolume":
                name = item["metadata"]["name"]
                cluster.kubectl("delete", "persistentvolume", name, "--ignore-not-found", timeout=300)


def _rollout(command: str) -> list[str]:
    return [sys.executable, "-m", "rollout", command]


def roll(planes: Planes, environment: str, definition: Path, engine: str) -> float:
    """Roll an environment out as `make rollout` does."""
    where = ("--environment", environment, "--engine", engine, "--journals", str(planes.folder / "journals"))
    return planes.run([*_rollout("rollout"), str(definition), *where])


@contextmanager
def running(definition: Path, stacks: Sequence[str] | None, folder: Path) -> Iterator[Planes]:
    """Start a control plane for each data plane of these stacks, with the nodes that the definition tells of."""
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
            cluster = LocalCluster.start(place, name=context_of(plane), nodes=nodes)
            clusters[plane.name] = stack_of.enter_context(cluster)
            crds.install(cluster, render(stack, read.lock, read.file).objects)
        yield Planes(read, clusters, folder)


def pinned(definition: Path, folder: Path) -> Path:
    """Copy a definition, with a digest for every image; simulated nodes run none, so any will do."""
    copy = folder / "definition" / definition.name
    copy.parent.mkdir()
    shutil.copy(definition, copy)
    images = {image.reference for stack in read_definition(copy).stacks for image in stack.platform.images}
    pins = [PinnedImage(image=image, digest=f"sha256:{'0' * 64}") for image in sorted(images)]
    (copy.parent / FILE_NAME).write_text(lock_text(pins), "utf-8")
    return copy


def checkout(folder: Path) -> Path:
    """Return a copy of the checkout for Pulumi, which writes the configuration of stacks there."""
    root = folder / "checkout"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    (root / ".venv").symlink_to(sys.prefix)  # as make links it; otherwise Pulumi would install one while it is measured
    return root


def text_of(definition: Path, changes: Mapping[str, str]) -> str:
    """Return a definition's text in which each key is replaced by its value."""
    text = definition.read_text("utf-8")
    for old, new in changes.items():
        if old not in text:
            raise SystemExit(f"{definition} does not say {old}")
        text = text.replace(old, new)
    return text
