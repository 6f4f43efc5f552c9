"""Simulated nodes: labels, resources, taints and devices of real GPU nodes, each with the program that publishes it.

kwok simulates the nodes, and every pod on them. A data plane's nodes have only what its pools may rely on
(`relies_on`). So a pod that selects anything else stays Pending, as on a real cluster.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from stacks.definition import DataPlane
from stacks.definition.placement import (
    CpuPlacement,
    DraPlacement,
    GpuNodes,
    MigPlacement,
    Placement,
    SharedGpuPlacement,
)
from stacks.definition.pools import Pool
from stacks.devices import device, inventory
from stacks.stack import Stack

KubernetesObject = dict[str, Any]
Labels = Mapping[str, str]
Layouts = Sequence[tuple[int, Mapping[str, int]]]
"""How many GPUs of a node are cut into which slices."""

GPU = "nvidia.com/gpu"
PRODUCT = f"{GPU}.product"
STRATEGY = "nvidia.com/mig.strategy"
SHARING = f"{GPU}.sharing-strategy"
_DRIVER = "gpu.nvidia.com"
MOST_NODES = 100  # Of one kind.

PLUGIN: Final = "device plugin"
DISCOVERY: Final = "GPU Feature Discovery"
MIG_MANAGER: Final = "MIG manager"
DRA_DRIVER: Final = "DRA driver"
LABELS: Final = {
    PRODUCT: DISCOVERY,
    STRATEGY: DISCOVERY,
    SHARING: DISCOVERY,
    "nvidia.com/mig.config.state": MIG_MANAGER,
}
"""NVIDIA's node labels and the program that publishes each. The device plugin publishes all of NVIDIA's resources, the
DRA driver DeviceClasses and ResourceSlices. Taints and all other labels are the administrator's."""

# The CPUs and memory of a node per GPU.
_CPU, _MEMORY_GI = 32, 240


def cpu_node(name: str, *, cpu: int = 64, memory_gi: int = 256, labels: Labels | None = None) -> KubernetesObject:
    """Return a node without GPUs."""
    return _node(name, cpu, memory_gi, {}, dict(labels or {}))


def mig_layouts(
    name: str, product: str, gpus: int, layouts: Layouts, *, labels: Labels | None = None
) -> KubernetesObject:
    """Return a node with MIG strategy mixed. `layouts` has numbers of GPUs and their slices. Other GPUs are whole."""
    devices = Counter({GPU: gpus - sum(count for count, _ in layouts)})
    for cut, slices in layouts:
        for profile, count in slices.items():
            devices[f"nvidia.com/mig-{profile.replace('+', '.')}"] += cut * count
    return _gpu_node(name, gpus, devices, {PRODUCT: product, **_mig("mixed"), **(labels or {})})


def mig_single(
    name: str, product: str, gpus: int, profile: str, slices: int, *, labels: Labels | None = None
) -> KubernetesObject:
    """Return a node with slices of MIG strategy single: all of one profile, with the resource nvidia.com/gpu."""
    found = {PRODUCT: f"{product}-MIG-{profile.replace('+', '.')}", **_mig("single"), **(labels or {})}
    return _gpu_node(name, gpus, {GPU: slices}, found)


def time_sliced(
    name: str,
    product: str,
    gpus: int,
    replicas: int,
    *,
    kind: str = "time-slicing",
    renamed: bool = True,
    labels: Labels | None = None,
) -> KubernetesObject:
    """Return a node whose GPUs are time-sliced (or shared by MPS, `kind="mps"`), each by `replicas` pods. With
    `renamed` (the plugin's renameByDefault) a share is a nvidia.com/gpu.shared, and the product keeps its name."""
    found = {PRODUCT: product if renamed else f"{product}-SHARED", SHARING: kind, **(labels or {})}
    return _gpu_node(name, gpus, {f"{GPU}.shared" if renamed else GPU: gpus * replicas}, found)


def by_dra(
    name: str, product: str, gpus: int, layouts: Layouts = (), *, labels: Labels | None = None
) -> list[KubernetesObject]:
    """Return a node whose GPUs or slices are allocated by Dynamic Resource Allocation, and its ResourceSlice."""
    return [
        _gpu_node(name, gpus, {}, {PRODUCT: product, **(labels or {})}),
        resource_slice(name, product, gpus, layouts),
    ]


def resource_slice(name: str, product: str, gpus: int, layouts: Layouts = ()) -> KubernetesObject:
    """Return the ResourceSlice in which the driver publishes a node's devices."""
    devices = []
    cuts = [slices for count, slices in layouts for _ in range(count)]
    for gpu in range(len(cuts), gpus):
        devices.append(_device(f"gpu-{gpu}", product, {"type": {"string": "gpu"}}))
    for gpu, slices in enumerate(cuts):
        for profile, count in slices.items():
            mig = {"type": {"string": "mig"}, "profile": {"string": profile}, "parentUUID": {"string": f"GPU-{gpu}"}}
            stem = f"gpu-{gpu}-mig-{re.sub('[^a-z0-9]', '-', profile)}"
            devices += [_device(f"{stem}-{number}", product, mig) for number in range(count)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{_DRIVER}"},
        "spec": {"driver": _DRIVER, "nodeName": name, "pool": pool, "devices": devices},
    }


def device_classes() -> list[KubernetesObject]:
    """Return the DeviceClasses that NVIDIA's driver for Dynamic Resource Allocation installs."""
    expression = f"device.driver == '{_DRIVER}' && device.attributes['{_DRIVER}'].type == "
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": f"{kind}.nvidia.com"},
            "spec": {"selectors": [{"cel": {"expression": f"{expression}'{kind}'"}}]},
        }
        for kind in ("gpu", "mig")
    ]


def relies_on(placement: Placement) -> frozenset[str]:
    """Return the programs that must run on a node for a pod of this placement to start there."""
    match placement:
        case CpuPlacement():
            return frozenset()
        case DraPlacement():
            return frozenset({DRA_DRIVER})
        case (
            MigPlacement(strategy="single") | SharedGpuPlacement()
        ):  # Only labels distinguish these devices from whole GPUs.
            return frozenset({PLUGIN, DISCOVERY})
        case _:
            return frozenset({PLUGIN, DISCOVERY} if placement.product else {PLUGIN})


def published(objects: Iterable[KubernetesObject], programs: Collection[str]) -> Iterator[KubernetesObject]:
    """Yield nodes and ResourceSlices with only the parts that these programs and administrators set."""
    for item in objects:
        if item["kind"] == "Node":
            labels = {
                key: text for key, text in item["metadata"]["labels"].items() if LABELS.get(key) in (None, *programs)
            }
            sizes = item["status"]["allocatable"]
            sizes = {
                key: size for key, size in sizes.items() if PLUGIN in programs or not key.startswith("nvidia.com/")
            }
            status = {"allocatable": sizes, "capacity": sizes}
            yield {**item, "metadata": {**item["metadata"], "labels": labels}, "status": status}
        elif DRA_DRIVER in programs:
            yield item


def nodes_of(plane: DataPlane, stacks: Iterable[Stack] = ()) -> list[KubernetesObject]:
    """Return a data plane's nodes from its definition, and two more nodes without GPUs.

    The pools of these stacks decide what a definition does not contain. These are custom labels of nodes, NVIDIA's
    programs there, and whether a share of a GPU is renamed.
    """
    pools = [pool for stack in stacks for server in stack.platform.servers for pool in server.pools]
    found: list[KubernetesObject] = []
    number = 0
    for group in plane.gpus:
        for _ in range(min(group.nodes, MOST_NODES)):
            number += 1
            found += nodes_of_group(f"{plane.made_as}-gpu-{number}", group, pools)
    labels = _selected_labels(pool for pool in pools if isinstance(pool.placement, CpuPlacement))
    for stack in stacks:
        labels = {**stack.platform.proxy.node_selector, **labels}
        for server in stack.platform.servers:
            labels = {**server.shared_node_selector, **labels}
    found += [cpu_node(f"{plane.made_as}-cpu-{number}", labels=labels) for number in (1, 2)]
    return [*(device_classes() if any(item["kind"] == "ResourceSlice" for item in found) else []), *found]


def nodes_of_group(name: str, group: GpuNodes, pools: Iterable[Pool]) -> Iterator[KubernetesObject]:
    """Yield one node of a group, and its ResourceSlice if pools claim its devices. They have what the placements of
    these pools rely on. Without such pools, they have what the usual programs publish."""
    product, kinds = group.product, {kind for kind, _ in inventory([group])}
    theirs = [pool for pool in pools if getattr(pool.placement, "product", None) in (None, product)]
    labels = _selected_labels(pool for pool in theirs if not isinstance(pool.placement, CpuPlacement))
    placements = [pool.placement for pool in theirs if device(pool.placement) in kinds]
    usual = {DRA_DRIVER} if group.strategy == "dra" else {PLUGIN, DISCOVERY}
    programs = frozenset[str]().union(*map(relies_on, placements)) or usual
    renamed = all(item.renamed for item in placements if isinstance(item, SharedGpuPlacement))
    yield from published(_complete(name, group, renamed, labels), programs)


def _complete(name: str, group: GpuNodes, renamed: bool, labels: Labels) -> Iterator[KubernetesObject]:
    """Yield a node of a group with everything that NVIDIA's programs publish."""
    product, gpus = group.product, group.per_node
    layouts = [(count, layout.slices) for count, layout in group.layouts]
    if group.strategy == "dra":
        yield from by_dra(name, product, gpus, layouts, labels=labels)
    elif group.strategy == "single":
        found = Counter[str]()
        for count, slices in layouts:
            found.update({profile: count * each for profile, each in slices.items()})
        ((profile, total),) = found.items()
        yield mig_single(name, product, gpus, profile, total, labels=labels)
    elif group.strategy == "mixed":
        yield mig_layouts(name, product, gpus, layouts, labels=labels)
    elif (sharing := group.sharing) is not None:
        yield time_sliced(name, product, gpus, sharing.replicas, kind=sharing.kind, renamed=renamed, labels=labels)
    else:
        yield _gpu_node(name, gpus, {GPU: gpus}, {PRODUCT: product, **labels})
        # A real node allocates its GPUs one way or the other. A definition counts them alike, so both ways work here.
        yield resource_slice(name, product, gpus)


def _selected_labels(pools: Iterable[Pool]) -> dict[str, str]:
    """Return the labels with which pools select their nodes."""
    labels: dict[str, str] = {}
    for pool in pools:
        labels = {**pool.node_selector, **labels}
    return labels


def _mig(strategy: str) -> dict[str, str]:
    return {STRATEGY: strategy, "nvidia.com/mig.config.state": "success"}


def _device(name: str, product: str, attributes: dict[str, Any]) -> KubernetesObject:
    # The device's name has a space where the node's label has its first dash.
    return {"name": name, "attributes": {"productName": {"string": product.replace("-", " ", 1)}, **attributes}}


def _gpu_node(name: str, gpus: int, devices: Mapping[str, int], labels: Labels) -> KubernetesObject:
    node = _node(name, _CPU * gpus, _MEMORY_GI * gpus, devices, labels)
    node["spec"] = {"taints": [{"key": GPU, "value": "true", "effect": "NoSchedule"}]}
    return node


def _node(name: str, cpu: int, memory_gi: int, devices: Mapping[str, int], labels: Labels) -> KubernetesObject:
    resources = {
        "cpu": str(cpu),
        "memory": f"{memory_gi}Gi",
        "ephemeral-storage": "500Gi",
        "pods": "110",
        **{key: str(count) for key, count in devices.items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "tidegate.dev/simulated": "true",
                "topology.kubernetes.io/region": "local",
                "topology.kubernetes.io/zone": "local-a",
                **labels,
            },
        },
        "status": {"allocatable": resources, "capacity": resources},
    }
