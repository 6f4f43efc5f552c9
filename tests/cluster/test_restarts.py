from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.local_cluster import LocalCluster
from lab.local_cluster.stand_ins import prepare
from rollout.changes.restarts import restarts
from stacks.validate import read_definition
from tests.processes import until

from .world import REFERENCE, objects_of, settled

Object = dict[str, Any]
STACK = "dev-lab"
LARGE, SMALL, PRELOAD = "ondemand-large", "ondemand-small", "preload-main"
PROXY = "inference-proxy"
WORKLOADS = "deployments,statefulsets"


class Environment:
    def __init__(self, cluster: LocalCluster, prefix: str, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = f"{prefix}-dev"
        self.definition = folder / "inference.yaml"
        self.text = REFERENCE.read_text("utf-8").replace("namespace: inference-", f"namespace: {prefix}-")
        self.objects = self.edited({})

    def edited(self, edits: dict[str, str]) -> list[Object]:
        text = self.text
        for old, new in edits.items():
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
            text = text.replace(old, new)
        self.definition.write_text(text, "utf-8")
        return objects_of(read_definition(self.definition), STACK)

    def apply(self, objects: list[Object]) -> None:
        self.cluster.apply(objects)
        until("the controllers saw it", self._noticed)

    def revisions(self) -> dict[str, str]:
        return {item["metadata"]["name"]: _revision(item) for item in self._workloads()}

    def _workloads(self) -> list[Object]:
        found: list[Object] = self.cluster.get(WORKLOADS, namespace=self.namespace)
        return found

    def _noticed(self) -> bool:
        return all(
            item["status"].get("observedGeneration") == item["metadata"]["generation"] and _revision(item)
            for item in self._workloads()
        )


def _revision(item: Object) -> str:
    if item["kind"] == "StatefulSet":
        return str(item["status"].get("updateRevision", ""))
    return str(item["metadata"].get("annotations", {}).get("deployment.kubernetes.io/revision", ""))


def predicted(before: list[Object], after: list[Object]) -> set[str]:
    return {restart.name for restart in restarts(before, after)}


@pytest.fixture(scope="module")
def environment(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """Dev, completely up. Each test applies an edit and reverts it."""
    made = Environment(cluster, "restarts", tmp_path_factory.mktemp("restarts"))
    prepare(cluster, made.objects)
    made.apply(made.objects)
    settled(cluster, made.namespace)
    yield made
    cluster.kubectl("delete", "namespace", made.namespace, "--wait=false")
    cluster.kubectl("delete", "persistentvolume", f"{made.namespace}-models", "--wait=false")


@pytest.fixture
def applied(environment: Environment) -> Iterator[Callable[[list[Object]], set[str]]]:
    """Apply more objects, and return the workloads with a new pod revision."""

    def apply(objects: list[Object]) -> set[str]:
        before = environment.revisions()
        environment.apply(objects)
        return {name for name, revision in environment.revisions().items() if before[name] != revision}

    yield apply
    environment.apply(environment.objects)


IMAGE = "  - name: proxy\n    repository"
NEXT = "  - name: triton-next\n    repository: nvcr.io/nvidia/tritonserver\n    tag: 26.09-py3\n"
SMALL_POOL = "{mode: on-demand, capacity: 8Gi}"
EDITS: list[tuple[str, dict[str, str], set[str]]] = [
    ("an image of one server",
        {IMAGE: NEXT + IMAGE, "  - name: preload #": "  - name: preload\n    image: triton-next #"}, {PRELOAD}),
    ("the image of the eviction policy",
        {"eviction-policy\n    tag: 0.2.0": "eviction-policy\n    tag: 0.9.0"}, {LARGE, SMALL}),
    ("the image of the proxy", {"inference-proxy\n    tag: 0.2.0": "inference-proxy\n    tag: 0.9.0"}, {PROXY}),
    ("the routing table",
        {"{version: 3, weight: 80}": "{version: 3, weight: 70}", "weight: 20}": "weight: 30}"}, set()),
    ("settings of an eviction policy", {SMALL_POOL: SMALL_POOL.replace("8Gi", "7Gi")}, set()),
    ("settings of the proxy",
        {"rateLimit: {requestsPerMinute": "logLevel: debug\n  rateLimit: {requestsPerMinute"}, {PROXY}),
    ("a model more", {"  - name: churn\n": "  - {name: more, server: preload}\n  - name: churn\n"}, set()),
    ("replicas",
        {"restarts-dev\n    proxy:\n      replicas: 1": "restarts-dev\n    proxy:\n      replicas: 2"}, set()),
    ("a MIG profile",
        {"kind: mig, profile: 2g.20gb": "kind: mig, profile: 1g.10gb", "small, replicas: 3": "small, replicas: 2"},
        {PRELOAD}),
    ("how long a start may take",
        {'{cpu: "2", memory: 16Gi}': '{cpu: "2", memory: 16Gi}\n        startupSeconds: 60'}, {SMALL}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        pytest.param(*edit[1:], id=edit[0], marks=() if number % 5 == 0 else pytest.mark.thorough)
        for number, edit in enumerate(EDITS)
    ],
)
def test_an_edit_restarts_the_workloads_in_the_preview(
    environment: Environment, applied: Callable[[list[Object]], set[str]], edits: dict[str, str], expected: set[str]
) -> None:
    after = environment.edited(edits)
    assert after != environment.objects
    assert predicted(environment.objects, after) == expected
    assert applied(after) == expected
    # The edit in reverse.
    assert predicted(after, environment.objects) == expected
    assert applied(environment.objects) == expected
