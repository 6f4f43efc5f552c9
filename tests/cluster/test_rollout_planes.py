"""Rollouts over three data planes, each a separate real control plane: failures, kills, resuming, reverting."""

import os
import random
import re
import signal
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab.local_cluster import LocalCluster
from lab.local_cluster.nodes import cpu_node, mig_layouts
from rollout.health import Target
from rollout.kubectl import Kubectl
from rollout.waves import gate
from rollout.waves.journal import Journal, RolloutRecord
from stacks.command import CommandError
from stacks.definition.rollout import PortForwardProbe
from tests.processes import until
from tests.rollout.conftest import Ended

from .world import COMMON, ENGINES, ROOT, Site, checkout_for_pulumi, read_until

pytestmark = pytest.mark.thorough
PLANES = ("east", "west", "north")
PRODUCT = "NVIDIA-A100-SXM4-80GB"
DEFINITION = (
    COMMON
    + """\
servers:
  - name: main
    repository: {{dataset: models}}
    pools:
      - name: warm
        loading: {{mode: preload}}
        placement: {{kind: mig, profile: 1g.10gb, product: {product}}}
        replicas: 1
gate: {{timeoutSeconds: 20, settleSeconds: 1}}
environments:
  - {{name: {name}, local: true}}
dataPlanes:
  - &plane
    name: east
    environments: [{name}]
    gpus: [{{nodes: 1, product: {product}, perNode: 1, mig: {{slices: {{1g.10gb: 4}}}}}}]
  - {{<<: *plane, name: west, wave: 2}}
  - {{<<: *plane, name: north, wave: 2}}
"""
)


@dataclass
class World(Site):
    clusters: Mapping[str, LocalCluster] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return f"tidegate-{self.prefix}"

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        where = ("--environment", self.prefix, "--engine", self.engine, "--journals", str(self.folder / "journals"))
        return self.launch("rollout", *where, *arguments)

    def roll(self, *arguments: str) -> Ended:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=3600)
        return Ended(process.returncode, out, err)

    def warm(self, plane: str) -> int | None:
        found = self.clusters[plane].get("statefulsets", namespace=self.namespace)
        return next((int(item["spec"]["replicas"]) for item in found), None)

    def available(self, plane: str) -> int:
        found = self.clusters[plane].get("statefulset", "main-warm", self.namespace)
        return int(found["status"].get("availableReplicas", 0))

    def record(self, number: int) -> RolloutRecord:
        return Journal(self.folder / "journals" / self.prefix / f"{number:04d}").record

    def progress(self) -> int:
        if not (self.folder / "journals" / self.prefix / "0001").exists():
            return 0
        counts = {"waiting": 0, "applied": 2, "passed": 3}
        return 1 + sum(counts.get(status.state, 1) for status in self.record(1).planes.values())

    def quota(self, plane: str, pods: int | None) -> None:
        """Limit the number of the environment's pods in a plane, or remove the limit."""
        if pods is None:
            self.clusters[plane].kubectl("delete", "resourcequota", "tight", "--namespace", self.namespace)
            return
        meta = {"name": "tight", "namespace": self.namespace}
        spec = {"hard": {"pods": str(pods)}}
        self.clusters[plane].apply([{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec}])


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, LocalCluster]]:
    """Three data planes, which the tests of this file share. Each test has a separate environment."""
    nodes = [mig_layouts("gpu-1", PRODUCT, 8, [(8, {"1g.10gb": 7})]), cpu_node("cpu-1")]
    with ExitStack() as running:
        yield {
            name: running.enter_context(LocalCluster.start(tmp_path_factory.mktemp(name), name=name, nodes=nodes))
            for name in PLANES
        }


@pytest.fixture(params=ENGINES)
def world(clusters: Mapping[str, LocalCluster], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    engine = request.param
    name = f"{engine}-{zlib.crc32(request.node.name.encode()):08x}"
    checkout, environment = checkout_for_pulumi(tmp_path) if engine == "pulumi" else (ROOT, {})
    environment |= {"KUBECONFIG": os.pathsep.join(str(cluster.kubeconfig) for cluster in clusters.values())}
    environment |= {"KUBECACHEDIR": str(tmp_path / "kubectl-cache")}
    made = World(clusters["east"], name, engine, tmp_path, environment, checkout, clusters=clusters)
    made.definition.parent.mkdir()
    made.write(DEFINITION.format(name=name, product=PRODUCT, server="main"))
    yield made
    made.end()
    for cluster in clusters.values():
        cluster.kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=false")
        cluster.kubectl("delete", "persistentvolume", f"{made.namespace}-models", "--ignore-not-found", "--wait=false")


def row(output: str, plane: str) -> str:
    return next(line for line in output.splitlines() if re.match(rf"│ {plane} ", line))


def test_a_failure_in_the_second_wave_stops_it_and_after_a_fix_it_continues_and_can_be_reverted(world: World) -> None:
    assert world.roll("--dry-run").code == 0
    assert {plane: world.warm(plane) for plane in PLANES} == dict.fromkeys(PLANES), "a dry run makes nothing"
    ended = world.roll()
    assert ended.code == 0, ended.out + ended.err
    assert {plane: world.warm(plane) for plane in PLANES} == dict.fromkeys(PLANES, 1)
    assert "3 of 3 planes passed" in ended.out
    east, west, north = (world.record(1).planes[name] for name in PLANES)
    assert east.changed_at < min(west.began_at, north.began_at), "the canary goes first"
    assert max(west.began_at, north.began_at) < min(west.changed_at, north.changed_at), "the others side by side"

    world.quota("west", 2)
    slowest = max(plane.seconds or 0 for plane in (east, west, north))  # Pulumi will wait for pods in vain.
    world.edit("local: true", f"local: true, rollout: {{engineTimeoutSeconds: {60 + 4 * slowest:.0f}}}")
    world.edit("replicas: 1\ngate", "replicas: 3\ngate")
    ended = world.roll()
    assert ended.code == 1
    assert "FAILED" in row(ended.out, "west")
    output = " ".join(re.sub(r"[│\s]+", " ", ended.out).split())
    for part in ("StatefulSet main-warm: 1 of 3 pods are available", "exceeded quota: tight"):
        assert part in output, output
    assert f"--environment {world.prefix} --resume" in ended.err
    assert world.warm("east") == 3

    world.quota("west", None)
    until("the controller has tried again", lambda: world.available("west") == 3)  # It retries less and less often.
    world.edit("replicas: 3\ngate", "replicas: 4\ngate")
    ended = world.roll("--resume")
    assert ended.code == 0, ended.out + ended.err
    assert "this rollout uses the earlier texts" in ended.err
    assert {plane: world.warm(plane) for plane in PLANES} == dict.fromkeys(PLANES, 3)
    assert world.record(2).planes["east"].attempts == 1

    relabel = ("label", "node", "gpu-1", "--overwrite")
    world.clusters["west"].kubectl(*relabel, "nvidia.com/gpu.product=Another-GPU")  # Running pods continue there.
    assert "pods of main-warm wait" in world.roll("--dry-run").err
    ended = world.roll("--back")
    world.clusters["west"].kubectl(*relabel, f"nvidia.com/gpu.product={PRODUCT}")
    assert ended.code == 0, "what ran before may run again, whatever a cluster lacks by now: " + ended.out + ended.err
    assert {plane: world.warm(plane) for plane in PLANES} == dict.fromkeys(PLANES, 1)

    world.edit("replicas: 4\ngate", "replicas: 1\ngate")

    def generations() -> list[int]:
        found = [cluster.get("statefulset", "main-warm", world.namespace) for cluster in world.clusters.values()]
        return [item["metadata"]["generation"] for item in found]

    before = generations()
    assert world.roll().code == 0
    assert generations() == before, "a rollout of what stands already changes nothing"


def test_a_rollout_that_is_killed_at_random_moments_is_finished_by_resume(world: World) -> None:
    world.edit("gate: {timeoutSeconds: 20", "gate: {timeoutSeconds: 120")  # Here slowness is not a failure.
    chance = random.Random(4)
    killed = 0
    for more in (1, 2, 3, 4):
        before = world.progress()
        process = world.start(*(["--resume"] if before else []))
        while process.poll() is None and world.progress() < before + more:
            time.sleep(0.02)
        time.sleep(chance.random())
        process.kill()
        out, err = process.communicate()
        if process.returncode == 0 or world.record(1).outcome == "succeeded":  # Finished planes take moments.
            break
        assert process.returncode == -signal.SIGKILL, out + err
        killed += 1
    else:
        ended = world.roll("--resume")
        assert ended.code == 0, ended.out + ended.err
    assert killed >= 2
    assert world.record(1).outcome == "succeeded"
    assert {plane: world.warm(plane) for plane in PLANES} == dict.fromkeys(PLANES, 1)
    assert world.roll().code == 0


def test_ctrl_c_finishes_the_current_plane_and_prints_how_to_continue(world: World) -> None:
    process = world.start()
    read_until(process, "[east] being applied")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=3600)
    assert process.returncode == 130, out + err
    assert "no other starts. Press Ctrl-C again to interrupt them." in err
    assert "passed" in row(out, "east")
    assert "not started" in row(out, "west")
    assert "was stopped: 1 of 3 planes passed." in err
    assert world.warm("west") is None
    ended = world.roll("--resume")
    assert ended.code == 0, ended.out + ended.err


def test_a_port_forward_that_leads_nowhere_ends_with_the_reason(
    clusters: Mapping[str, LocalCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(clusters["east"].kubeconfig))
    with pytest.raises(CommandError, match=r"port-forward: .*not found"):
        gate.send(PortForwardProbe(kind="port-forward"), Kubectl("east"), Target("nowhere", (), 80, False))
