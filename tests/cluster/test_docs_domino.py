"""docs/domino.md: its definition, brought up in two data planes by the commands that stand there."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.local_cluster.nodes import cpu_node, mig_mixed
from lab.local_cluster.stand_ins import stand_ins
from tests.docs.test_ci import surroundings
from tests.rollout.conftest import Ended

from .conftest import MakeCluster
from .test_rollout_planes import World, row
from .world import ROOT, Object

pytestmark = pytest.mark.thorough
PAGE = (ROOT / "docs/domino.md").read_text("utf-8")
(DEFINITION,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
(FAILED,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^(tidegate rollout .*)$", PAGE, re.MULTILINE)
SLICES = {"2g.20gb": 2, "1g.10gb": 3}


@dataclass
class Nexus(World):
    """The page's environment in its two clusters; its commands are run one after the other."""

    next: int = 0

    @property
    def definition(self) -> Path:
        """Where `tidegate` looks for it."""
        return self.folder / "stacks" / "inference.yaml"

    def goes_on(self) -> Ended:
        """Run the page's next command, in a folder of its own."""
        goal, *said = COMMANDS[self.next].split()[1:]
        self.next += 1
        command = [sys.executable, "-m", "cli", goal, *said, "--engine", self.engine]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**surroundings(), **self.environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=900,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def preloading(self) -> dict[str, int]:
        """How many replicas the preload pool has in each plane."""
        found = {
            name: cluster.get("statefulset", "preload-main", self.namespace) for name, cluster in self.clusters.items()
        }
        return {name: item["spec"]["replicas"] for name, item in found.items()}

    def named(self, plane: str, kind: str) -> dict[str, Object]:
        """The environment's objects of a kind in a plane, by name."""
        return {item["metadata"]["name"]: item for item in self.clusters[plane].get(kind, namespace=self.namespace)}


@pytest.fixture
def nexus(make_cluster: MakeCluster, tmp_path: Path) -> Iterator[Nexus]:
    label = "dominodatalab.com/node-pool"
    nodes = [
        mig_mixed("gpu-1", "NVIDIA-A100-SXM4-80GB", 1, SLICES, labels={label: "default-gpu"}),
        mig_mixed("gpu-2", "NVIDIA-A100-SXM4-80GB", 1, SLICES, labels={label: "default-gpu"}),
        cpu_node("cpu-1", labels={label: "platform"}),
    ]
    clusters = {plane: make_cluster(nodes, name=f"domino-{plane}") for plane in ("eu", "us")}
    assert re.findall(r"context: (\S+)", DEFINITION) == [cluster.context for cluster in clusters.values()]
    environment = {"KUBECONFIG": os.pathsep.join(str(cluster.kubeconfig) for cluster in clusters.values())}
    environment |= {"KUBECACHEDIR": str(tmp_path / "kubectl-cache")}
    made = Nexus(clusters["eu"], "prod", "helm", tmp_path, environment, clusters=clusters)
    made.definition.parent.mkdir()
    made.write(DEFINITION)
    made.edit("settleSeconds: 60, timeoutSeconds: 900", "settleSeconds: 1, timeoutSeconds: 30")
    for plane, cluster in clusters.items():
        cluster.apply(stand_ins(made.rendered(f"prod-{plane}").objects))
    yield made
    made.end()


def test_the_definition_is_rolled_out_fails_at_the_second_planes_gate_and_is_resumed(nexus: Nexus) -> None:
    ended = nexus.goes_on()
    assert ended.code == 0, ended.out + ended.err
    for name in ("eu", "us"):
        assert re.search(rf"^prod-{name}: \d+ created$", ended.out, re.MULTILINE)

    ended = nexus.goes_on()
    assert ended.code == 0, ended.out + ended.err
    assert nexus.preloading() == {"eu": 1, "us": 1}
    asked = {plane: nexus.named(plane, "configmaps")["inference-proxy-settings"]["data"] for plane in nexus.clusters}
    urls = {plane: data["TIDEGATE_PROXY_DOMINO_PRINCIPAL_URL"] for plane, data in asked.items()}
    assert urls == {
        "eu": "http://nucleus-frontend.domino-platform.svc:80/v4/auth/principal",
        "us": "https://domino.example.com/v4/auth/principal",
    }
    ways = {plane: {*nexus.named(plane, "networkpolicies")} for plane in nexus.clusters}
    assert ways["eu"] - ways["us"] == {"domino-platform"}
    assert "reach-domino" in ways["us"]
    paths = {plane: folders(nexus.named(plane, "statefulsets")) for plane in nexus.clusters}
    dataset = "filecache/65f1c0ffee0000000000d002/"
    assert paths["eu"] == {f"{dataset}{path}" for path in paths["us"]}

    for plane, cluster in nexus.clusters.items():
        cluster.apply(stand_ins(nexus.rendered(f"prod-{plane}").objects, in_namespaces=True))
    nexus.quota("us", 4)
    nexus.edit("pools: [{name: main, replicas: 1}]", "pools: [{name: main, replicas: 2}]")
    ended = nexus.goes_on()
    assert "Error 1" in ended.err, ended.out + ended.err
    assert "passed" in row(ended.out, "eu")
    assert "FAILED" in row(ended.out, "us")
    said = words(ended.out + ended.err)
    for line in FAILED.strip().splitlines():
        for part in line.split("…"):
            assert words(part) in said, ended.out + ended.err
    assert nexus.preloading() == {"eu": 2, "us": 2}
    generation = nexus.named("eu", "statefulsets")["preload-main"]["metadata"]["generation"]

    nexus.quota("us", None)
    ended = nexus.goes_on()
    assert ended.code == 0, ended.out + ended.err
    assert "2 of 2 planes passed" in ended.out
    assert nexus.named("us", "statefulsets")["preload-main"]["status"]["readyReplicas"] == 2
    assert nexus.named("eu", "statefulsets")["preload-main"]["metadata"]["generation"] == generation
    assert nexus.next == len(COMMANDS)


def folders(pools: Mapping[str, Object]) -> set[str]:
    """Return the folders that pods mount of their volumes."""
    return {
        mount["subPath"]
        for pool in pools.values()
        for container in pool["spec"]["template"]["spec"]["containers"]
        for mount in container["volumeMounts"]
        if "subPath" in mount
    }


def words(text: str) -> str:
    """Return a text without the lines of tables and without its breaks."""
    return " ".join(re.sub(r"[│\s]+", " ", text).split())
