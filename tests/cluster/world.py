"""What tests on a cluster put there: definitions, their objects, nodes; and how they wait for them."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.local_cluster import LocalCluster, crds
from lab.local_cluster.nodes import cpu_node, mig_mixed
from rollout.render import render
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "stacks" / "inference.yaml"
DEFINITIONS = ROOT / "tests" / "definitions"
EVERYTHING = DEFINITIONS / "everything.yaml"
Object = dict[str, Any]


def read(path: Path, into: Path | None = None, **texts: str) -> Definition:
    """Read a definition; with `texts`, a copy of it in which each key's text is replaced by its value."""
    if into is None:
        return read_definition(path)
    text = path.read_text("utf-8")
    for old, new in texts.items():
        assert old in text, old
        text = text.replace(old, new)
    (into / path.name).write_text(text, "utf-8")
    return read_definition(into / path.name)


def reference_in(prefix: str, into: Path) -> Definition:
    """Return the reference with namespaces that begin with a prefix."""
    return read(REFERENCE, into, **{"namespace: inference-": f"namespace: {prefix}-"})


def objects_of(definition: Definition, *names: str) -> list[Object]:
    """Return the objects of these stacks, in the order in which they can be applied; of all by default."""
    stacks = [stack for stack in definition.stacks if not names or stack.name in names]
    return [item for stack in stacks for item in render(stack, definition.lock, definition.file).objects]


def prepare(cluster: LocalCluster, objects: Sequence[Object]) -> None:
    """Bring into a cluster what its administrators would: custom kinds, and the priority classes that pods name."""
    crds.install(cluster, objects)
    names = {pod_spec(item).get("priorityClassName") for item in objects if item["kind"] in WORKLOADS} - {None}
    if names:
        meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
        cluster.apply([{**meta, "metadata": {"name": name}} for name in names])


WORKLOADS = ("Deployment", "StatefulSet")


def pod_spec(workload: Mapping[str, Any]) -> Object:
    """Return the pods' part of a workload."""
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def roomy_nodes() -> list[Object]:
    """Return nodes with room for a dozen environments like the reference's at once."""
    slices = {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
    gpus = [mig_mixed(f"gpu-{number}", "NVIDIA-A100-SXM4-80GB", 8, slices) for number in range(1, 4)]
    return [*gpus, *(cpu_node(f"cpu-{number}", cpu=256, memory_gi=1000) for number in range(1, 4))]


def until(what: str, there: Callable[[], Any], seconds: float = 120) -> Any:
    """Return what `there` returns as soon as it is true, and fail when that takes too long: on a slow machine too."""
    deadline = time.monotonic() + seconds
    while not (found := there()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


def settled(cluster: LocalCluster, *namespaces: str, seconds: float = 180) -> None:
    """Wait until every workload of these namespaces has all its pods, updated and available."""

    def busy() -> list[str]:
        return [
            f"{item['kind']} {item['metadata']['name']}"
            for namespace in namespaces
            for item in cluster.get("deployments,statefulsets", namespace=namespace)
            if not _done(item)
        ]

    waiting = busy()
    deadline = time.monotonic() + seconds
    while waiting:
        assert time.monotonic() < deadline, f"not available: {', '.join(waiting)}"
        time.sleep(0.2)
        waiting = busy()


def _done(item: Object) -> bool:
    status, wanted = item["status"], item["spec"]["replicas"]
    seen = status.get("observedGeneration") == item["metadata"]["generation"]
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")]
    return seen and counts == [wanted] * 4


def planes(stacks: Sequence[Stack]) -> list[Any]:
    """Return the data planes of stacks, each once."""
    return [*{stack.data_plane.name: stack.data_plane for stack in stacks}.values()]
