"""Simulated nodes carry the labels and offer the resources that the environment's pods choose by."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.local_cluster import LocalCluster
from lab.local_cluster.nodes import by_dra, cpu_node, mig_mixed, mig_single, nodes_of, time_sliced, whole_gpus
from stacks.definition.placement import DraPlacement
from stacks.devices import inventory
from stacks.stack import Stack

from .world import DEFINITIONS, REFERENCE, WORKLOADS, objects_of, planes, pod_spec, read, until

Node = dict[str, Any]
FILES = [REFERENCE, *sorted(DEFINITIONS.glob("*.yaml"))]
A100, H100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"


def devices(node: Node) -> dict[str, int]:
    """What a node offers of NVIDIA's devices."""
    return {name: int(count) for name, count in node["status"]["allocatable"].items() if name.startswith("nvidia.com/")}


def labels(node: Node) -> dict[str, str]:
    return {key.removeprefix("nvidia.com/"): value for key, value in node["metadata"]["labels"].items()}


def test_mig_mixed_has_a_resource_and_labels_for_each_profile() -> None:
    """And no whole GPU is left, as the device plugin says it."""
    node = mig_mixed("n", A100, 2, {"1g.10gb": 2, "3g.40gb": 1})
    assert devices(node) == {"nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-3g.40gb": 2}
    expected = {
        "gpu.product": A100,
        "gpu.count": "2",
        "gpu.memory": "81920",
        "mig.capable": "true",
        "mig.strategy": "mixed",
        "mig.config": "custom",
        "mig.config.state": "success",
        "mig-1g.10gb.count": "4",
        "mig-1g.10gb.product": f"{A100}-MIG-1g.10gb",
        "mig-3g.40gb.count": "2",
        "mig-3g.40gb.slices.gi": "3",
    }
    assert expected.items() <= labels(node).items()


def test_mig_single_calls_every_slice_a_gpu_and_says_the_profile_in_the_product() -> None:
    """Only the label tells a slice from a whole GPU."""
    node = mig_single("n", H100, 8, "1g.10gb", 7)
    assert devices(node) == {"nvidia.com/gpu": 56}
    expected = {"gpu.product": f"{H100}-MIG-1g.10gb", "gpu.count": "56", "mig.strategy": "single"}
    assert expected.items() <= labels(node).items()
    assert labels(node)["mig.config"] == "all-1g.10gb"


def test_shares_are_renamed_or_their_product_is() -> None:
    """The device plugin's renameByDefault says which of the two."""
    renamed = time_sliced("n", L4, 1, 4)
    assert devices(renamed) == {"nvidia.com/gpu.shared": 4}
    assert labels(renamed)["gpu.product"] == L4
    plain = time_sliced("n", L4, 1, 4, renamed=False, kind="mps")
    assert devices(plain) == {"nvidia.com/gpu": 4}
    assert labels(plain)["gpu.product"] == f"{L4}-SHARED"
    assert labels(plain)["gpu.sharing-strategy"] == "mps"
    assert labels(plain)["gpu.replicas"] == "4"


def test_whole_gpus_and_nodes_without() -> None:
    """GPU nodes keep others away; a node without GPUs has neither labels nor resources of theirs."""
    node = whole_gpus("n", "NVIDIA-H200", 8)
    assert devices(node) == {"nvidia.com/gpu": 8}
    assert node["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    plain = cpu_node("n", labels={"pool": "platform"})
    assert devices(plain) == {}
    assert "spec" not in plain
    assert plain["metadata"]["labels"]["pool"] == "platform"
    assert not [key for key in plain["metadata"]["labels"] if key.startswith("nvidia.com/")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_data_planes_nodes_offer_what_its_definition_tells_of(file: Path) -> None:
    """As many devices of each kind as the rules of the definition count."""
    definition = read(file)
    for plane in definition.header.data_planes:
        theirs = [stack for stack in definition.stacks if stack.data_plane.name == plane.name]
        found: Counter[tuple[str, str]] = Counter()
        dra: Counter[str] = Counter()
        for item in nodes_of(plane, theirs):
            if item["kind"] == "Node":
                product = labels(item).get("gpu.product", "").removesuffix("-SHARED").partition("-MIG-")[0]
                found.update({(name, product): count for name, count in devices(item).items() if count})
            if item["kind"] == "ResourceSlice":
                for device in item["spec"]["devices"]:
                    dra[device["attributes"].get("profile", {}).get("string", "whole")] += 1
        wanted: Counter[tuple[str, str]] = Counter()
        wanted_dra: Counter[str] = Counter()
        for (device, product), count in inventory(plane.gpus).items():
            if device.kind == "dra":
                wanted_dra[str(device.profile)] += count
            elif device.kind == "mig" and device.strategy == "mixed":
                wanted[f"nvidia.com/mig-{device.profile}", product] += count
            else:
                shared = device.kind in ("time-slicing", "mps") and _renamed(theirs, product)
                wanted["nvidia.com/gpu.shared" if shared else "nvidia.com/gpu", product] += count
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


def test_of_very_many_nodes_only_some_are_played() -> None:
    """A data plane of thousands of nodes needs no thousand here."""
    definition = read(DEFINITIONS / "six-data-planes.yaml")
    plane = definition.header.data_planes[0]
    many = plane.model_copy(update={"gpus": (plane.gpus[0].model_copy(update={"nodes": 5000}),)})
    assert len(nodes_of(many, most=7)) == 7 + 2


@pytest.mark.thorough
def test_kwok_keeps_labels_and_resources_of_every_kind_of_node(make_cluster: Callable[..., LocalCluster]) -> None:
    """On a real API server the nodes are Ready, and offer what was written, also through the node's status."""
    wanted = [
        mig_mixed("mixed", A100, 1, {"1g.10gb": 7}),
        mig_single("single", H100, 1, "1g.10gb", 7),
        whole_gpus("whole", "NVIDIA-H200", 8),
        time_sliced("sliced", L4, 1, 4),
        *by_dra("dra", A100, 1, {"1g.10gb": 7}),
        cpu_node("cpu"),
    ]
    running = make_cluster(wanted)
    found = {item["metadata"]["name"]: item for item in running.get("nodes")}
    assert found.keys() == {"mixed", "single", "whole", "sliced", "dra", "cpu"}
    for node in (item for item in wanted if item["kind"] == "Node"):
        there = found[node["metadata"]["name"]]
        assert node["metadata"]["labels"].items() <= there["metadata"]["labels"].items()
        assert there["status"]["allocatable"] == there["status"]["capacity"] == node["status"]["allocatable"]
        assert {"type": "Ready", "status": "True"}.items() <= {
            item["type"]: item for item in there["status"]["conditions"]
        }["Ready"].items()
    (slices,) = running.get("resourceslices")
    assert len(slices["spec"]["devices"]) == 7
    # Again, and cut anew: what it no longer offers is gone.
    running.add_nodes([mig_mixed("mixed", A100, 1, {"3g.40gb": 2})])
    until(
        "the node offers other slices",
        lambda: devices(running.get("node", "mixed")) == {"nvidia.com/gpu": 0, "nvidia.com/mig-3g.40gb": 2},
    )
    assert not [key for key in running.get("node", "mixed")["metadata"]["labels"] if "1g.10gb" in key]


def test_devices_by_dra_have_the_attributes_that_our_claims_ask_for() -> None:
    """The claim's expression compares the product's name as the label writes it."""
    definition = read(DEFINITIONS / "everything.yaml")
    asked = [
        pool.placement
        for stack in definition.stacks
        for server in stack.platform.servers
        for pool in server.pools
        if isinstance(pool.placement, DraPlacement)
    ]
    assert {item.product for item in asked} == {None, "NVIDIA-H200"}
    (plane,) = planes(definition.stacks)
    devices_there = [
        device["attributes"]
        for item in nodes_of(plane, definition.stacks)
        if item["kind"] == "ResourceSlice"
        for device in item["spec"]["devices"]
    ]
    for placement in asked:
        assert [
            there
            for there in devices_there
            if there.get("profile", {}).get("string") == placement.profile
            and placement.product in (None, there["productName"]["string"].replace(" ", "-"))
        ]
