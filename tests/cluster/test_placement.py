import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.local_cluster import LocalCluster
from lab.local_cluster.nodes import PRODUCT, nodes_of
from lab.local_cluster.stand_ins import prepare
from stacks.validate import read_definition
from tests.processes import until

from .world import DEFINITIONS, EVERYTHING, REFERENCE, objects_of, settled

Object = dict[str, Any]
A100, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A data plane with GPUs in every kind of partition, and one environment that uses them all."""
    definition = read_definition(EVERYTHING)
    nodes = [item for plane in definition.header.data_planes for item in nodes_of(plane, definition.stacks)]
    with LocalCluster.start(tmp_path_factory.mktemp("everything"), name="everything", nodes=nodes) as running:
        objects = objects_of(definition)
        prepare(running, objects)
        running.apply(objects)
        # The claim that the definition expects, with the volume for it.
        running.apply(CLAIMED)
        until("the proxy has been scaled", lambda: _replicas(running, "inference-prod", "inference-proxy") == 3)
        settled(running, "inference-prod")
        yield running


def _already_there(kind: str, spec: Object, **meta: str) -> Object:
    spec |= {"accessModes": ["ReadOnlyMany"]}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "already-there", **meta}, "spec": spec}


_SIZE = {"storage": "1Gi"}
_REFERENCE = {"name": "already-there", "namespace": "inference-prod"}
_OF_IT = {"storageClassName": "", "volumeName": "already-there", "resources": {"requests": _SIZE}}
CLAIMED = [
    _already_there("PersistentVolume", {"capacity": _SIZE, "claimRef": _REFERENCE, "hostPath": {"path": "/srv"}}),
    _already_there("PersistentVolumeClaim", _OF_IT, namespace="inference-prod"),
]


def devices(cluster: LocalCluster, namespace: str) -> dict[str, tuple[str, str]]:
    """Return each pod's devices and its node's product. Fails for a pod that is not Ready on a node."""
    products = {item["metadata"]["name"]: item["metadata"]["labels"].get(PRODUCT, "") for item in cluster.get("nodes")}
    claims = {item["metadata"]["name"]: item for item in cluster.get("resourceclaims", namespace=namespace)}
    found = {}
    for pod in cluster.get("pods", namespace=namespace):
        conditions = {item["type"]: item["status"] for item in pod["status"]["conditions"]}
        assert conditions["Ready"] == "True", pod["metadata"]["name"]
        limits = (container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"])
        words = [f"{count} {name}" for each in limits for name, count in each.items() if name.startswith("nvidia.com/")]
        for status in pod["status"].get("resourceClaimStatuses", ()):
            allocation = claims[status["resourceClaimName"]]["status"]["allocation"]
            words += [item["device"] for item in allocation["devices"]["results"]]
        found[pod["metadata"]["name"]] = (" ".join(words), products[pod["spec"]["nodeName"]])
    return found


def _replicas(cluster: LocalCluster, namespace: str, name: str) -> int:
    return int(cluster.get("deployment", name, namespace)["spec"]["replicas"])


def test_pods_land_on_mig_single_mixed_whole_shared_and_dra_nodes(everything: LocalCluster) -> None:
    """Every kind of GPU partition in one data plane. None uses a device of another."""
    found = devices(everything, "inference-prod")
    expected = {
        "preload-mixed-0": ("1 nvidia.com/mig-2g.20gb", A100),
        "preload-sliced-0": ("1 nvidia.com/gpu.shared", "NVIDIA-L4"),
        "preload-claimed-0": ("gpu-0-mig-1g-10gb-0", ""),
        "ondemand-single-0": ("1 nvidia.com/gpu", f"{H100}-MIG-1g.10gb"),
        "ondemand-single-1": ("1 nvidia.com/gpu", f"{H100}-MIG-1g.10gb"),
        "ondemand-shared-0": ("1 nvidia.com/gpu", "NVIDIA-L40S-SHARED"),
        "ondemand-whole-0": ("2 nvidia.com/gpu", "NVIDIA-H200"),
        "ondemand-device-0": ("gpu-0", "NVIDIA-H200"),
        **{f"{name}-main-0": ("", "") for name in ("fromblob", "fromnfs", "fromclaim", "frombucket")},
    }
    assert {name: words for name, words in found.items() if not name.startswith("inference-proxy-")} == expected
    pods = {item["metadata"]["name"]: item for item in everything.get("pods", namespace="inference-prod")}
    assert pods["ondemand-single-0"]["status"]["initContainerStatuses"][0]["ready"], "the native sidecar runs"
    volumes = everything.get("persistentvolumes")
    assert [item["status"]["phase"] for item in volumes] == ["Bound"] * 6
    staged = [item["spec"] for item in volumes if item["spec"].get("storageClassName") == "nvme"]
    assert [spec["claimRef"]["name"] for spec in staged] == ["ondemand-whole-0-staging"]


NO_DEVICE = "cannot allocate all claims"
RUN_OUT = [("preload-mixed", 3, "Insufficient nvidia.com/mig-2g.20gb"), ("preload-claimed", 7, NO_DEVICE)]
RUN_OUT_TOO = [
    ("ondemand-whole", 4, "Insufficient nvidia.com/gpu"),
    ("ondemand-single", 7, "Insufficient nvidia.com/gpu"),
    ("preload-sliced", 4, "Insufficient nvidia.com/gpu.shared"),
    ("ondemand-shared", 4, "Insufficient nvidia.com/gpu"),
    ("ondemand-device", 8, NO_DEVICE),
]


@pytest.mark.parametrize(
    ("workload", "fit", "why"), [*RUN_OUT, *(pytest.param(*row, marks=pytest.mark.thorough) for row in RUN_OUT_TOO)]
)
def test_when_slices_run_out_a_pod_waits_with_a_reason(
    everything: LocalCluster, workload: str, fit: int, why: str
) -> None:
    """With one replica more than there are slices, the last one waits for a slice of its kind."""
    before = everything.get("statefulset", workload, "inference-prod")["spec"]["replicas"]
    everything.kubectl("scale", "statefulset", workload, f"--replicas={fit + 1}", "-n", "inference-prod")
    try:

        def waiting() -> list[Object]:
            pods = [
                pod
                for pod in everything.get("pods", namespace="inference-prod")
                if pod["metadata"]["name"].rpartition("-")[0] == workload
            ]
            ready = [pod for pod in pods if pod["status"]["phase"] == "Running"]
            return [pod for pod in pods if pod not in ready and len(ready) == fit]

        (pod,) = until(f"{fit} of {fit + 1} run", waiting)
        words = until("the scheduler has a reason", lambda: _reason(everything, pod["metadata"]["name"]))
        assert why in words
    finally:
        everything.kubectl("scale", "statefulset", workload, f"--replicas={before}", "-n", "inference-prod")
        settled(everything, "inference-prod")


def _reason(cluster: LocalCluster, name: str) -> str:
    conditions = cluster.get("pod", name, "inference-prod")["status"].get("conditions", ())
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=() if file == EVERYTHING else pytest.mark.thorough)
        for file in (REFERENCE, *sorted(DEFINITIONS.glob("*.yaml")))
    ],
    ids=lambda file: file.stem,
)
def test_the_api_server_accepts_every_object(cluster: LocalCluster, file: Path) -> None:
    """A strict dry run on the server, with the operators' definitions of every custom kind."""
    definition = read_definition(file)
    for stack in definition.stacks:
        objects = objects_of(definition, stack.name)
        prepare(cluster, objects)
        # A dry run does not create the namespace of the objects, so they use an existing one.
        moved = [_in_default(item) for item in objects]
        applied = cluster.apply(moved, "--dry-run=server", "--validate=strict", timeout=120)
        assert len(applied.splitlines()) == len(objects)
        assert all(line.endswith("serverside-applied (server dry run)") for line in applied.splitlines())


def _in_default(item: Object) -> Object:
    if "namespace" not in item["metadata"]:
        return item
    return {**item, "metadata": {**item["metadata"], "namespace": "default"}}


@pytest.mark.thorough
def test_with_everything_switched_on_an_apply_of_the_same_changes_nothing(everything: LocalCluster) -> None:
    """Every kind and field, also after the API server has set all defaults. The test reverts scaling first."""
    objects = objects_of(read_definition(EVERYTHING))
    everything.apply(objects)
    settled(everything, "inference-prod")
    before = _versions(everything, objects)
    everything.apply(objects)
    assert _versions(everything, objects) == before


def _versions(cluster: LocalCluster, objects: list[Object]) -> dict[tuple[str, str, str], Any]:
    """Return each live object with its managed fields, without its status, which controllers write at any time."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    found = {}
    answer = cluster.kubectl("get", "-f", "-", "-o", "json", "--show-managed-fields", input=text)
    for item in json.loads(answer.stdout)["items"]:
        meta = item["metadata"]
        meta.pop("resourceVersion")
        item.pop("status", None)
        meta["managedFields"] = [entry for entry in meta["managedFields"] if entry.get("subresource") != "status"]
        found[item["kind"], meta.get("namespace", ""), meta["name"]] = item
    return found
