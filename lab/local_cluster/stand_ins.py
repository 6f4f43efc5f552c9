"""What others make in a real cluster, for a local one: classes, drivers and secrets that rendered objects need."""

from collections.abc import Mapping, Sequence
from typing import Any

from rollout.needs import needs_of

_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "PriorityClass": {"value": 1000, "description": "Stands in for the one of a real cluster."},
    "CSIDriver": {"spec": {"attachRequired": False}},
    "StorageClass": {"provisioner": "kubernetes.io/host-path"},
    "ClusterIssuer": {"spec": {"selfSigned": {}}},
    "Secret": {},
    "ConfigMap": {},
}


def stand_ins(objects: Sequence[dict[str, Any]], *, in_namespaces: bool = False) -> list[dict[str, Any]]:
    """Return stand-ins for what these objects need of a cluster, or of its namespaces."""
    needs = (need for need in needs_of(objects) if need.hard and bool(need.namespace) == in_namespaces)
    return [{**need.stub, **_STAND_INS[need.kind]} for need in needs if need.kind in _STAND_INS]
