"""Simulated nodes carry the labels and offer the resources that the environment's pods choose by."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.local_cluster import LocalCluster
from lab.local_cluster.nodes import cpu_node, mig_mixed, mig_single, nodes_of, time_sliced, whole_gpus
from stacks.devices import inventory
from stacks.stack import Stack

from .world import DEFINITIONS, REFERENCE, WORKLOADS, objects_of, pod_spec, read, until

Node = dict[str, Any]
FILES = [REFERENCE, *sorted(DEFINITIONS.glob("*.yaml"))]
A100, H100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"


def devices(node: Node) -> dict[str, int]:
    """What a node offers of NVIDIA's devices."""
    return {name: int(count) for name, count in node["status"]["allocatable"].items() if name.startswith("nvidia.com/")}


def labels(node: Node) -> dict[str, str]:
    return {key.removeprefix("nvidia.com/"): value for key, value in node["metadata"]["labels"].items()}


@pytest.mark.parametrize(
    ("node", "offered", "labelled"),
    [
        (
            mig_mixed("n", A100, 2, {"1g.10gb": 2, "3g.40gb": 1}),  # and no whole GPU is left
            {"nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-3g.40gb": 2},
            {"gpu.product": A100, "mig.strategy": "mixed", "mig.config.state": "success"},
        ),
        (
            mig_single("n", H100, 8, "1g.10gb", 56),  # only the label tells a slice from a whole GPU
            {"nvidia.com/gpu": 56},
            {"gpu.product": f"{H100}-MIG-1g.10gb", "mig.strategy": "single"},
        ),
        (time_sliced("n", L4, 1, 4), {"nvidia.com/gpu.shared": 4}, {"gpu.product": L4}),
        (
            time_sliced("n", L4, 1, 4, renamed=False, kind="mps"),
            {"nvidia.com/gpu": 4},
            {"gpu.product": f"{L4}-SHARED", "gpu.sharing-strategy": "mps"},
        ),
        (whole_gpus("n", "NVIDIA-H200", 8), {"nvidia.com/gpu": 8}, {"gpu.product": "NVIDIA-H200"}),
        (cpu_node("n", labels={"pool": "platform"}), {}, {"pool": "platform"}),
    ],
    ids=["mixed", "single", "time-slicing", "mps", "whole", "without"],
)
def test_a_node_offers_and_is_labelled_as_nvidias_device_plugin_and_feature_discovery_do(
    node: Node, offered: dict[str, int], labelled: dict[str, str]
) -> None:
    """GPU nodes keep others away."""
    assert devices(node) == offered
    assert labelled.items() <= labels(node).items()
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    assert node.get("spec", {}).get("taints", []) == ([taint] if offered else [])


def test_a_node_that_is_cut_anew_offers_what_it_is_cut_into_now(cluster: LocalCluster) -> None:
    """On a real API server: what it no longer offers is gone."""
    for profile in ("1g.10gb", "3g.40gb"):
        offered = {"nvidia.com/gpu": 0, f"nvidia.com/mig-{profile}": 2}
        cluster.add_nodes([mig_mixed("cut", A100, 1, {profile: 2})])
        until("the node offers it", lambda: devices(cluster.get("node", "cut")) == offered)  # noqa: B023  # called here
    cluster.kubectl("delete", "node", "cut")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_data_planes_nodes_offer_what_its_definition_tells_of(file: Path) -> None:
    """As many devices of each kind as the rules of the definition count."""
    definition = read(file)
    for plane in definition.header.data_planes:
        theirs = [stack for stack in definition.stacks if stack.data_plane.name == plane.name]
        found: Counter[str] = Counter()
        dra: Counter[str] = Counter()
        for item in nodes_of(plane, theirs):
            if item["kind"] == "Node":
                found.update({name: count for name, count in devices(item).items() if count})
            if item["kind"] == "ResourceSlice":
                for device in item["spec"]["devices"]:
                    dra[device["attributes"].get("profile", {}).get("string", "whole")] += 1
        wanted: Counter[str] = Counter()
        wanted_dra: Counter[str] = Counter()
        for (device, product), count in inventory(plane.gpus).items():
            if device.kind == "dra":
                wanted_dra[str(device.profile)] += count
            elif device.kind == "mig" and device.strategy == "mixed":
                wanted[f"nvidia.com/mig-{device.profile}"] += count
            else:
                shared = device.kind in ("time-slicing", "mps") and _renamed(theirs, product)
                wanted["nvidia.com/gpu.shared" if shared else "nvidia.com/gpu"] += count
        assert found == wanted
        assert {name: count for name, count in dra.items() if name != "whole"} == wanted_dra


def _renamed(stacks: list[Stack], product: str) -> bool:
    placements = [pool.placement for stack in stacks for server in stack.platform.servers for pool in server.pools]
    asked = [item for item in placements if getattr(item, "product", None) == product and hasattr(item, "renamed")]
    return all(item.renamed for item in asked)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_pod_finds_a_node_with_its_labels_and_resources(file: Path) -> None:
    """Checked here without a scheduler, for every stack of every definition."""
    definition = read(file)
    for stack in definition.stacks:
        nodes = [item for item in nodes_of(stack.data_plane, [stack]) if item["kind"] == "Node"]
        for workload in objects_of(definition, stack.name):
            if workload["kind"] in WORKLOADS:
                spec = pod_spec(workload)
                assert [node for node in nodes if fits(spec, node)], (stack.name, workload["metadata"]["name"])


def fits(spec: Mapping[str, Any], node: Node) -> bool:
    """Whether a node has the labels that a pod wants, and offers devices enough for it alone."""
    asked: Counter[str] = Counter()
    for container in spec["containers"]:
        for name, count in container["resources"].get("limits", {}).items():
            if name.startswith("nvidia.com/"):
                asked[name] += int(count)
    there = devices(node)
    wanted = spec.get("nodeSelector", {}).items() <= node["metadata"]["labels"].items()
    return wanted and all(there.get(name, 0) >= count for name, count in asked.items())
