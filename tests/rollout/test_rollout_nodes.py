"""Whether pods find a node, were all of them empty; tests/cluster asks a real scheduler about the same."""

from typing import Any

import pytest

from rollout.changes.workloads import workloads
from rollout.nodes import Place, place_of

from .conftest import made

GPU = "nvidia.com/gpu"
SIZE = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi"}
TAINT = {"key": GPU, "value": "true", "effect": "NoSchedule"}
NODES: list[dict[str, Any]] = [
    {"metadata": {"labels": {"zone": "a", "memory": "40000"}}, "status": {"allocatable": SIZE}},
    {
        "metadata": {"labels": {"zone": "b", "gpu": "L4"}},
        "spec": {"taints": [TAINT]},
        "status": {"allocatable": {**SIZE, "memory": "64Gi", GPU: "4"}},
    },
]


def place(replicas: int = 1, asked: object = None, nodes: Any = None, **spec: object) -> Place:
    """Where the pods of a workload could be, which ask for this."""
    pod = {"containers": [{"name": "c", "resources": asked or {"requests": {"cpu": "1", "memory": "1Gi"}}}], **spec}
    (workload,) = workloads([made("Deployment", spec={"replicas": replicas, "template": {"spec": pod}})]).values()
    return place_of(workload, NODES if nodes is None else nodes)


def among(key: str, operator: str, *values: str) -> dict[str, object]:
    requirement = {"key": key, "operator": operator, **({"values": [*values]} if values else {})}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def gpus(count: int) -> dict[str, object]:
    return {"requests": {"cpu": "1"}, "limits": {GPU: str(count)}}


ON_GPUS: dict[str, Any] = {"tolerations": [{"key": GPU, "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("affinity", "finds"),
    [
        (among("zone", "In", "a", "c"), True),
        (among("zone", "In", "c"), False),
        (among("zone", "NotIn", "b"), True),
        (among("memory", "Gt", "39999"), True),
        (among("memory", "Gt", "40000"), False),
        (among("memory", "Lt", "40001"), True),
        (among("zone", "Gt", "1"), False),
        (among("gpu", "Exists"), False),  # it is tainted
        (among("zone", "DoesNotExist"), False),
        (among("gpu", "DoesNotExist"), True),
        (among("none", "NotIn", "x"), True),
    ],
)
def test_nodes_are_chosen_by_affinity_as_kubernetes_does(affinity: object, finds: bool) -> None:
    assert (place(affinity=affinity).what == "") == finds


@pytest.mark.parametrize(
    ("toleration", "finds"),
    [
        ({"key": GPU, "operator": "Exists"}, True),
        ({"key": GPU, "operator": "Equal", "value": "true", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": GPU, "operator": "Equal", "value": "false"}, False),
        ({"key": GPU, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_taint_keeps_pods_away_that_do_not_tolerate_it(toleration: object, finds: bool) -> None:
    found = place(nodeSelector={"zone": "b"}, tolerations=[toleration])
    told = "" if finds else f"nodes labelled zone=b have the taint {GPU}=true:NoSchedule, which tolerations do not name"
    assert found.what == told


def test_a_node_that_is_not_ready_or_being_emptied_is_one_all_the_same() -> None:
    passing = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}
    assert place(nodes=[{**NODES[0], "spec": passing}]).what == ""


def test_what_no_node_has_is_told_with_how_much_is_asked() -> None:
    found = place(asked={"requests": {"cpu": "1", "memory": "33Gi"}}, nodeSelector={"zone": "a"})
    assert found.what == "no node labelled zone=a has 33Gi of memory for a pod"
    assert place(asked={"limits": {"memory": "33Gi"}}, **ON_GPUS).what == ""
    apart = {"requests": {"memory": "40Gi"}, "limits": {GPU: "1"}}  # each of two nodes has one of them
    sizes: list[dict[str, str]] = [{**SIZE, GPU: "1"}, {"memory": "64Gi"}]
    nodes = [{"status": {"allocatable": size}} for size in sizes]
    assert place(asked=apart, nodes=nodes).what == f"nodes have {GPU}, memory for 0 of 1 pod"


def test_devices_are_counted_over_all_nodes_and_no_replica_needs_any() -> None:
    assert place(2, gpus(2), **ON_GPUS).what == ""
    assert place(3, gpus(2), **ON_GPUS) == Place(
        2, f"nodes have {GPU} for 2 of 3 pods", ("describe", "nodes"), place(1, gpus(5), **ON_GPUS).do
    )
    assert place(1, gpus(5), **ON_GPUS).room == 0
    assert place(0, gpus(5)).what == ""
