from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.local_cluster import LocalCluster
from lab.local_cluster.nodes import (
    DISCOVERY,
    DRA_DRIVER,
    LABELS,
    MIG_MANAGER,
    PLUGIN,
    by_dra,
    mig_layouts,
    mig_single,
    nodes_of,
    published,
    relies_on,
    time_sliced,
)
from lab.local_cluster.stand_ins import prepare
from rollout.kubectl import Kubectl
from rollout.preflight import lacks
from rollout.render import render
from stacks.stack import Definition
from stacks.validate import read_definition

from .conftest import MakeCluster
from .world import EVERYTHING, settled

A100, H100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"
POOL = "{{name: p{number}, loading: {{mode: on-demand, capacity: 1Gi}}, placement: {placement}, replicas: {replicas}}}"
DEFINITION = """\
images:
  - {{name: triton, repository: registry.test/triton, tag: "1"}}
  - {{name: proxy, repository: registry.test/proxy, tag: "1"}}
  - {{name: eviction-policy, repository: registry.test/eviction-policy, tag: "1"}}
datasets: [{{name: models, kind: nfs, server: nfs.test, path: /models}}]
servers:
  - name: gpus
    repository: {{dataset: models}}
    pools:
{pools}
models: [{{name: one, server: gpus, pool: p0}}]
proxy:
  replicas: 1
  auth: {{oidc: [{{issuer: "https://idp.test", audiences: [tidegate]}}]}}
  access: [{{name: all, principals: [ci]}}]
network:
  callers: [{{name: ci, namespaceLabels: {{kubernetes.io/metadata.name: ci}}}}]
  reach: [{{name: idp, cidr: 10.20.30.40/32, ports: [443], by: [proxy]}}]
environments: [{{name: dev, namespace: {namespace}}}]
dataPlanes:
  - name: lab
    environments: [dev]
    gpus:
{gpus}
"""


def defined(
    into: Path, pools: Sequence[str], gpus: Sequence[str], *, namespace: str = "gpus", replicas: int = 1
) -> Definition:
    lines = [POOL.format(number=number, placement=one, replicas=replicas) for number, one in enumerate(pools)]
    text = DEFINITION.format(
        pools="\n".join(f"      - {line}" for line in lines),
        gpus="\n".join(f"      - {line}" for line in gpus),
        namespace=namespace,
    )
    (into / "gpus.yaml").write_text(text, "utf-8")
    return read_definition(into / "gpus.yaml")


def test_every_label_and_resource_of_a_simulated_node_has_a_program_that_publishes_it() -> None:
    everything = read_definition(EVERYTHING)
    nodes = [
        mig_layouts("n", A100, 1, [(1, {"1g.10gb": 1})]),
        mig_single("n", A100, 1, "1g.10gb", 7),
        time_sliced("n", L4, 1, 2),
        *by_dra("n", A100, 1),
        *nodes_of(everything.header.data_planes[0], everything.stacks),
    ]
    assert [*published(nodes, {PLUGIN, DISCOVERY, MIG_MANAGER, DRA_DRIVER})] == nodes
    for node in published(nodes, ()):
        assert node["kind"] == "Node"
        names = {*node["metadata"]["labels"], *node["status"]["allocatable"], *node["status"]["capacity"]}
        assert not [name for name in names if name.startswith("nvidia.com/")]


MIXED = "mig: {slices: {1g.10gb: 7}}"
SINGLE = "mig: {strategy: single, slices: {1g.10gb: 7}}"
CLAIMED = "mig: {strategy: dra, slices: {1g.10gb: 7}}"
WHOLE = ""
PLACEMENTS: list[tuple[str, str, set[str]]] = [
    ("{kind: cpu}", WHOLE, set()),
    ("{kind: mig, profile: 1g.10gb}", MIXED, {PLUGIN}),
    (f"{{kind: mig, profile: 1g.10gb, product: {A100}}}", MIXED, {PLUGIN, DISCOVERY}),
    (f"{{kind: mig, profile: 1g.10gb, strategy: single, product: {A100}}}", SINGLE, {PLUGIN, DISCOVERY}),
    ("{kind: mig, profile: 1g.10gb+me}", "mig: {slices: {1g.10gb+me: 1}}", {PLUGIN}),
    ("{kind: gpu}", WHOLE, {PLUGIN}),
    (f"{{kind: gpu, count: 2, product: {A100}}}", WHOLE, {PLUGIN, DISCOVERY}),
    ("{kind: time-slicing}", "sharing: {kind: time-slicing, replicas: 2}", {PLUGIN, DISCOVERY}),
    (f"{{kind: mps, renamed: false, product: {A100}}}", "sharing: {kind: mps, replicas: 2}", {PLUGIN, DISCOVERY}),
    ("{kind: dra, profile: 1g.10gb}", CLAIMED, {DRA_DRIVER}),
    (f"{{kind: dra, profile: 1g.10gb, product: {A100}}}", CLAIMED, {DRA_DRIVER}),
    (f"{{kind: dra, deviceClass: gpu.nvidia.com, product: {A100}}}", WHOLE, {DRA_DRIVER}),
]


@pytest.mark.parametrize(("placement", "cut", "programs"), PLACEMENTS, ids=[each[0] for each in PLACEMENTS])
def test_a_pod_demands_nothing_that_its_placement_may_not_rely_on(
    tmp_path: Path, placement: str, cut: str, programs: set[str]
) -> None:
    """These programs publish every label, resource and device that the pod names. It needs no other program."""
    definition = defined(tmp_path, [placement], [f"{{product: {A100}, nodes: 1, perNode: 2, {cut}}}"])
    (stack,) = definition.stacks
    ((_, _, pool),) = stack.pools()
    assert relies_on(pool.placement) == programs
    (workload,) = (item for item in render(stack, definition).objects if item["kind"] == "StatefulSet")
    spec = workload["spec"]["template"]["spec"]
    limits = {name for one in spec["containers"] for name in one["resources"].get("limits", {})}
    profile = (getattr(pool.placement, "profile", None) or "").replace("+", ".")
    assert {name.partition("mig-")[2] for name in limits if "mig-" in name} <= {profile}
    demanded = {LABELS[key] for key in spec.get("nodeSelector", {}) if key.startswith("nvidia.com/")}
    demanded |= {PLUGIN for name in limits if name.startswith("nvidia.com/")}
    demanded |= {DRA_DRIVER for _ in spec.get("resourceClaims", ())}
    assert demanded == programs


BY_CLAIMS = (
    (
        f"{{kind: dra, profile: 1g.10gb, product: {A100}}}",
        f"{{kind: dra, deviceClass: gpu.nvidia.com, product: {H100}}}",
        "{kind: dra, profile: 2g.20gb}",
    ),
    (
        f"{{product: {A100}, nodes: 1, perNode: 2, mig: {{strategy: dra, slices: {{1g.10gb: 1, 2g.20gb: 3}}}}}}",
        f"{{product: {H100}, nodes: 1, perNode: 2}}",
    ),
)
BY_PLUGIN = (
    ("{kind: mig, profile: 1g.10gb}", "{kind: gpu, count: 2}"),
    (
        f"{{product: {A100}, nodes: 1, perNode: 2, mig: {{slices: {{1g.10gb: 7}}}}}}",
        f"{{product: {H100}, nodes: 1, perNode: 4}}",
    ),
)


@pytest.mark.thorough
@pytest.mark.parametrize(("pools", "gpus", "program"), [(*BY_CLAIMS, DRA_DRIVER), (*BY_PLUGIN, PLUGIN)])
def test_pods_start_on_free_gpus_and_preflight_finds_nothing(
    tmp_path: Path, make_cluster: MakeCluster, pools: Sequence[str], gpus: Sequence[str], program: str
) -> None:
    """With a real scheduler. Neither GPU Feature Discovery nor the MIG manager labels these nodes."""
    definition = defined(tmp_path, pools, gpus, replicas=2)
    (stack,) = definition.stacks
    nodes = nodes_of(stack.data_plane, definition.stacks)
    assert [*published((item for item in nodes if item["kind"] != "DeviceClass"), {program})] == [
        item for item in nodes if item["kind"] != "DeviceClass"
    ]
    cluster = make_cluster(nodes, name="stripped")
    objects = [*render(stack, definition).objects]
    prepare(cluster, objects)
    assert _hard(cluster, definition) == []
    cluster.apply(objects)
    settled(cluster, "gpus")


def _hard(cluster: LocalCluster, definition: Definition) -> list[str]:
    wanted = [(stack, [*render(stack, definition).objects]) for stack in definition.stacks]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment().items():
            patch.setenv(name, value)
        found = lacks(Kubectl(cluster.context), wanted)
    return [lack.what for each in found.values() for lack in each if lack.hard]
