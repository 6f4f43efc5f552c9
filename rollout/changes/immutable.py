"""Which fields Kubernetes does not let anybody change: a change of one means a new object in the old one's place."""

from collections.abc import Mapping, Sequence
from typing import Any

_MUTABLE_STATEFULSET = {
    "replicas",
    "template",
    "updateStrategy",
    "ordinals",
    "minReadySeconds",
    "persistentVolumeClaimRetentionPolicy",
    "revisionHistoryLimit",
}
# Everything else in a PersistentVolume's spec is its source (csi, nfs, hostPath, …) or says where it can be used.
_MUTABLE_VOLUME = {
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
}


def immutable_changes(kind: str, old: Mapping[str, Any], paths: Sequence[Sequence[str | int]]) -> list[str]:
    """Return the immutable fields among those that changed, each as `spec.volumeClaimTemplates`."""
    found = {
        ".".join(field)
        for path in paths
        if (field := _immutable(kind, old, [_plain(step) for step in path])) is not None
    }
    return sorted(found)


def _plain(step: str | int) -> str:
    return str(step).partition("[")[0] or str(step)


def _immutable(kind: str, old: Mapping[str, Any], path: Sequence[str]) -> Sequence[str] | None:
    if kind in ("ConfigMap", "Secret"):
        return path[:2] if old.get("immutable") is True and path[0] in ("data", "binaryData", "immutable") else None
    if path[0] != "spec" or len(path) < 2:
        return None
    inside = path[1]
    if (
        (kind == "StatefulSet" and inside not in _MUTABLE_STATEFULSET)
        or (kind in ("Deployment", "DaemonSet") and inside == "selector")
        or (kind == "PersistentVolume" and inside not in _MUTABLE_VOLUME)
        or (kind == "Service" and inside == "clusterIP")
        or kind == "ResourceClaimTemplate"
    ):
        return path[:2]
    if kind == "PersistentVolumeClaim" and inside != "volumeAttributesClassName":
        # Not even more may be requested: only volumes that a driver provisioned can grow, and none of ours was.
        return path[: 3 if inside == "resources" else 2]
    return None
