"""Slices that exist, models that fit."""

from typing import Any

from stacks.rules import capacity
from tests.stacks.definition.examples import GONE, PRODUCT, BrokenTable, KeptTable

WARM, COLD = "servers/main/pools/warm", "servers/main/pools/cold"
MIG: dict[str, Any] = {"kind": "mig", "product": PRODUCT}
A_HUNDRED = {"min": 1, "max": 100}
NODES: dict[str, Any] = {"nodes": 1, "product": PRODUCT, "perNode": 1}
CPU = {"kind": "cpu"}
ON_CPU = {f"{WARM}/placement": CPU, f"{COLD}/placement": CPU}
ONE_PLANE = {"dataPlanes/east": GONE, "dataPlanes/lab/environments": ["dev", "prod"]}


def gpus(*groups: dict[str, Any]) -> dict[str, Any]:
    return {"dataPlanes/lab/gpus": list(groups), "dataPlanes/east": GONE, "environments/prod": GONE}


BROKEN: BrokenTable = {
    capacity.mig_profiles_exist_on_their_product: [
        ({f"{COLD}/placement/profile": "1g.5gb"}, "profile: »1g.5gb", f"{PRODUCT} has no MIG profile 1g.5gb"),
        ({f"{COLD}/placement": {"kind": "dra", "product": "NVIDIA-H200", "profile": "1g.10gb"}}, "profile: »1g.10gb",
         'Did you mean "1g.18gb"?'),
    ],
    capacity.preloaded_models_fit_their_slice: [
        ({"models/churn/footprint": "19Gi"}, "»kind: mig", "sum to 20.4 GB, and its slice has 20.0 GB"),
        # together, though each alone would fit
        ({"models/churn/footprint": "10Gi", "models/other": {"server": "main", "pool": "warm", "footprint": "10Gi"}},
         "»kind: mig", "sum to 21.5 GB"),
        ({f"{WARM}/placement": CPU, f"{WARM}/resources": {"memory": "2Gi"}, f"{WARM}/sharedMemory": "512Mi"},
         "»kind: cpu", "the declared footprints"),
    ],
    capacity.on_demand_models_fit_their_capacity: [
        ({f"{COLD}/placement": {"kind": "time-slicing"}}, "»mode: on-demand",
         "main/cold has no capacity, and none follows from its placement"),
        ({f"{COLD}/loading/capacity": "10Gi"}, "capacity: »10Gi",
         "capacity 10Gi is more than the 10.0 GB that the slice has"),
        # more than nine tenths of the slice
        ({"models/ocr/footprint": "9Gi"}, "footprint: »9Gi", "it could never be loaded"),
        ({f"{COLD}/loading/capacity": "4Gi", "models/ocr/pinned": True,
         "models/other": {"server": "main", "pool": "cold", "pinned": True, "footprint": "2Gi"}}, "»mode: on-demand",
         "the pinned models of main/cold sum to 5.4 GB, and its capacity is 4.3 GB"),
    ],
    capacity.models_stay_idle_longer_than_a_lease:
        [({"models/ocr/idleSeconds": 14}, "idleSeconds: »14",
          "idleSeconds 14 is less than leaseSeconds 15 of main/cold")],
    capacity.slices_asked_for_are_there: [
        ({f"{COLD}/replicas": 3}, "»gpus:", 'data plane "lab" has 2 × MIG 1g.10gb (mixed)'),
        # every environment that shares the plane counts
        ({**ONE_PLANE, f"{WARM}/placement": CPU, f"{COLD}/replicas": 2}, "»gpus:",
         "Asked for by dev-lab main/cold: 2 (placement in line"),
        # and so does what an autoscaler may choose
        ({f"{COLD}/autoscaling": {"kind": "cpu", **A_HUNDRED}}, "»gpus:", "its environments ask for 100", "error", 2),
        # every shortage is said at once
        ({f"{WARM}/replicas": 50, f"{COLD}/replicas": 60, "dataPlanes/east": GONE, "environments/prod": GONE},
         "»gpus:", "ask for 50", "error", 2),
        # a whole GPU is given by the device plugin or by DRA, not twice
        ({f"{WARM}/placement": {"kind": "gpu"}, f"{COLD}/placement": {"kind": "dra", "deviceClass": "gpu.nvidia.com"},
          f"{COLD}/loading/capacity": "8Gi", **gpus(NODES)}, "»gpus:", "has 1 × whole GPU"),
        # of each profile
        ({"dataPlanes/lab/gpus": GONE}, "- »name: lab", 'data plane "lab" has 0 ×', "error", 2),
        # a slice of another strategy is another resource
        ({f"{COLD}/placement/strategy": "single"}, "»gpus:", "0 × MIG 1g.10gb (single)", "error", 2),
        # of any product, and of this one: together they are more than there is
        ({f"{WARM}/placement": {"kind": "mig", "profile": "1g.10gb"}, f"{COLD}/replicas": 2}, "»gpus:",
         "has 2 × MIG 1g.10gb (mixed), and its environments ask for 3"),
        ({**ON_CPU, f"{WARM}/placement": {"kind": "gpu", "count": 2}, **gpus(NODES)}, "»gpus:",
         "has 1 × whole GPU, and its environments ask for 2"),
        ({**ON_CPU, f"{WARM}/placement": {"kind": "mps"}, f"{WARM}/replicas": 5,
         **gpus({**NODES, "sharing": {"kind": "mps", "replicas": 4}})}, "»gpus:", "has 4 × MPS share of a GPU"),
    ],
    capacity.products_that_are_asked_for_are_there:
        [({f"{COLD}/placement/product": "NVIDIA-A100-PCIE-80GB"}, "product: »NVIDIA-A100-PCIE-80GB",
          'has no GPU of this product, "NVIDIA-A100-PCIE-80GB"', "error", 2)],
    capacity.whole_gpus_are_told_from_slices:
        [({**ON_CPU, f"{WARM}/placement": {"kind": "gpu"},
          **gpus({**NODES, "nodes": 4}, {**NODES, "sharing": {"kind": "mps", "replicas": 4}})}, "»kind: gpu",
          "asks for whole GPUs of any product")],
    capacity.node_selectors_leave_the_placement_alone:
        [({f"{COLD}/nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}}, "nvidia.com/gpu.product: »Tesla-T4",
          "nodeSelector of main/cold sets nvidia.com/gpu.product, which follows from its placement")],
    capacity.only_on_demand_models_are_pinned_or_idle: [
        ({"models/churn/pinned": True}, "pinned: »true", 'pinned of model "churn" means nothing', "advisory"),
        ({"models/churn/idleSeconds": 60}, "idleSeconds: »60", "main/warm evicts no model", "advisory"),
    ],
    capacity.gpus_of_a_replica_are_in_one_node: [
        # three nodes of one GPU are no room for two
        ({**ON_CPU, f"{WARM}/placement": {"kind": "gpu", "count": 2}, **gpus({**NODES, "nodes": 3})}, "count: »2",
         "main/warm asks for 1 × 2 GPUs in one node"),
        # and two nodes of three are no room for three times two
        ({**ON_CPU, f"{WARM}/placement": {"kind": "gpu", "count": 2}, f"{WARM}/replicas": 3,
         **gpus({**NODES, "nodes": 2, "perNode": 3})}, "count: »2", 'data plane "lab" has room for 2'),
    ],
}  # fmt: skip
KEPT: KeptTable = {
    capacity.node_selectors_leave_the_placement_alone: [{f"{COLD}/nodeSelector": {"example.com/pool": "gpu"}}],
    capacity.only_on_demand_models_are_pinned_or_idle: [
        {"models/ocr/pinned": True, "models/ocr/idleSeconds": 60},
    ],
    capacity.gpus_of_a_replica_are_in_one_node:
        [{**ON_CPU, f"{WARM}/placement": {"kind": "gpu", "count": 4}, f"{WARM}/replicas": 2,
          **gpus({**NODES, "perNode": 8})}],
    capacity.whole_gpus_are_told_from_slices:
        [{**ON_CPU, f"{WARM}/placement": {"kind": "gpu"}, **gpus({**NODES, "nodes": 4})}],
    capacity.mig_profiles_exist_on_their_product: [
        {f"{COLD}/placement/profile": "7g.80gb"},
        {f"{COLD}/placement": {**MIG, "profile": "2g.20gb"}},
        # A product that is not in the table is taken as it is.
        {f"{COLD}/placement": {"kind": "mig", "product": "NVIDIA-A30", "profile": "1g.6gb"}},
    ],
    capacity.preloaded_models_fit_their_slice: [
        {"models/churn/footprint": "18Gi"},
        {"models/ocr/footprint": "100Gi"},
    ],
    capacity.on_demand_models_fit_their_capacity: [
        {f"{COLD}/placement": {"kind": "time-slicing"}, f"{COLD}/loading/capacity": "4Gi"},
        {"models/ocr/footprint": "8Gi", "models/ocr/pinned": True},
    ],
    capacity.models_stay_idle_longer_than_a_lease: [{"models/ocr/idleSeconds": 15}],
    capacity.slices_asked_for_are_there: [
        {f"{COLD}/replicas": 2},
        {**ON_CPU, "dataPlanes/lab/gpus": GONE, "dataPlanes/east/gpus": GONE},
        {**ON_CPU, f"{WARM}/placement": {"kind": "gpu", "count": 2}, **gpus({**NODES, "perNode": 2})},
    ],
}  # fmt: skip
