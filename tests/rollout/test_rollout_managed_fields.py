"""Who set which field, as API servers note it; what a real one makes of that is in tests/cluster/test_drift.py."""

from typing import Any

import pytest

from rollout.managed_fields import left_over, managers, owner

TRITON = 'k:{"name":"triton"}'
CONTAINERS = ("f:spec", "f:template", "f:spec", "f:containers")


def entry(manager: str, fields: dict[str, Any], operation: str = "Apply", **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": fields, "time": "2026-01-01T00:00:00Z", **more}


def nested(*path: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for step in reversed(path):
        fields = {step: fields}
    return fields


def workload(*entries: dict[str, Any]) -> dict[str, Any]:
    containers = [
        {"name": "triton", "image": "a", "env": [{"name": "A", "value": "1"}]},
        {"name": "shady", "image": "b"},
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x", "managedFields": list(entries)},
        "spec": {"replicas": 5, "template": {"spec": {"containers": containers}}},
    }


WANTED = workload()
WANTED["spec"] = {"template": {"spec": {"containers": [{"name": "triton", "image": "a"}]}}}


@pytest.mark.parametrize(
    ("manager", "operation", "subresource", "is_engine", "is_hand"),
    [
        ("helm", "Apply", "", True, False),
        ("helm", "Update", "", False, False),
        ("pulumi-kubernetes-1a2b3c4d", "Apply", "", True, False),
        ("pulumi-kubernetes", "Update", "", True, False),
        ("kubectl", "Apply", "", False, True),
        ("kubectl-edit", "Update", "", False, True),
        ("kubectl-edit", "Update", "status", False, False),
        ("kubectl-rollout", "Update", "", False, False),
        ("k9s", "Update", "", False, True),
        ("kube-controller-manager", "Update", "", False, False),
    ],
)
def test_engines_and_people_are_told_apart(
    manager: str, operation: str, subresource: str, is_engine: bool, is_hand: bool
) -> None:
    (found,) = managers(workload(entry(manager, {}, operation, subresource=subresource)))
    assert (found.is_engine, found.is_hand) == (is_engine, is_hand)


def test_the_last_engine_owns_an_object_and_kubectl_only_where_there_is_none() -> None:
    helm = entry("helm", {})
    kubectl = entry("kubectl", {}, time="2026-01-03T00:00:00Z")
    pulumi = entry("pulumi-kubernetes-1", {}, time="2026-01-02T00:00:00Z")
    for entries, name in (((helm, pulumi, kubectl), pulumi), ((kubectl,), kubectl), ((), None)):
        found = owner(workload(*entries))
        assert (found and found.name) == (name and name["manager"])


def test_what_an_autoscaler_sets_too_is_not_left_over() -> None:
    env = (*CONTAINERS, TRITON, "f:env", 'k:{"name":"A"}')
    replicas = nested("f:spec", "f:replicas")
    live = workload(entry("helm", replicas), entry("kubectl-set", nested(*env), "Update"))
    assert set(left_over(live, WANTED)) == {("f:spec", "f:replicas"), env}
    live["metadata"]["managedFields"].append(entry("kube-controller-manager", replicas, "Update", subresource="scale"))
    assert left_over(live, WANTED) == [env]
