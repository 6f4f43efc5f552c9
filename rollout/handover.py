"""Ownership, before an engine runs: fields that people or another engine set, and objects that were left behind."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import managed_fields
from .changes.compare import identity
from .kubectl import Kubectl, KubernetesObject, as_list
from .live import PART_OF, created_from, with_scale

AUTOSCALED = "tidegate-autoscaled"
"""Field manager of a workload's replicas, from the time an autoscaler is declared until that sets them itself."""
MENDING = "tidegate-mending"  # Field manager that removes manual additions.
US = "tidegate"  # Field manager of the ownership marks.
_HELMS = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")


def remove_manual_additions(
    kube: Kubectl, rendered: Sequence[KubernetesObject], live: Sequence[KubernetesObject]
) -> None:
    """Remove fields that people added to objects by hand. No engine does that: each removes only fields that it set
    before. Manual changes and removals every engine reverts."""
    declared = {identity(item): item for item in rendered}
    added: list[tuple[KubernetesObject, list[managed_fields.Path]]] = []
    for item in live:
        by_hand = managed_fields.by_hand(item)
        wanted = declared.get(identity(item))
        left = managed_fields.left_over(item, with_scale(wanted, item)) if wanted and by_hand else []
        if paths := [path for path in left if path in by_hand]:
            added.append((item, paths))
    fresh = created_from(kube, [declared[identity(item)] for item, _ in added])
    bare = []
    for item, paths in added:
        # A manager that replaced a whole object also owns its defaults, which stay.
        find, other = managed_fields.find, fresh.get(identity(item), item)
        if differing := [path for path in paths if find(item, path) != find(other, path)]:
            _patch(kube, item, {"managedFields": managed_fields.handed_over(item, differing, MENDING)})
            bare.append(_bare(item))
    # The API server removes the fields that only this manager owns when it applies the object without them.
    _apply(kube, bare, MENDING)


def _apply(kube: Kubectl, objects: Sequence[KubernetesObject], manager: str) -> None:
    if objects:
        how = ("--server-side", "--validate=false", f"--field-manager={manager}")
        kube.run("apply", *how, "-f", "-", stdin=as_list(objects))


def _bare(item: KubernetesObject) -> KubernetesObject:
    head = {field: item["metadata"][field] for field in ("name", "namespace") if field in item["metadata"]}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": head}


def keep_scale(kube: Kubectl, rendered: Sequence[KubernetesObject], live: Sequence[KubernetesObject]) -> None:
    """Keep the replicas of workloads that an autoscaler will scale from now on. An engine that no longer sets the field
    removes it, and the API server then defaults to one replica."""
    declared = {identity(item): item for item in rendered}
    scaled = []
    for item in (item for item in live if identity(item) in declared):
        wanted, owner = declared[identity(item)], managed_fields.owner(item)
        engine_sets = owner is not None and "f:replicas" in owner.fields.get("f:spec", {})
        if engine_sets and with_scale(wanted, item) != wanted:
            scaled.append({**_bare(item), "spec": {"replicas": item["spec"]["replicas"]}})
    _apply(kube, scaled, AUTOSCALED)


def prune(kube: Kubectl, gone: Sequence[KubernetesObject]) -> None:
    """Delete objects of a stack that are no longer declared, if they still exist. An engine deletes those that it
    knows, but a killed run may have made objects that it does not know."""
    if gone:
        bare = [_bare(item) for item in gone]
        kube.run("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=as_list(bare))


def to_helm(kube: Kubectl, live: Sequence[KubernetesObject], marks: Mapping[str, Any]) -> None:
    """Give objects to a Helm release with its marks, whichever engine had them. No pod sees a change. In a namespace
    that someone else made, their labels stay theirs: otherwise Helm would remove them."""
    for item in live:
        labels = item["metadata"].get("labels") or {}
        is_theirs = item["kind"] == "Namespace" and labels.get(PART_OF) != "tidegate"
        fields = {} if is_theirs else {"managedFields": managed_fields.of_engine(item, "helm", "Apply")}
        _patch(kube, item, {**marks, **fields})


def to_pulumi(kube: Kubectl, live: Sequence[KubernetesObject]) -> None:
    """Make objects look as if Pulumi had created them, so that it adopts them. No pod sees a change."""
    for item in live:
        fields = managed_fields.of_engine(item, "pulumi-kubernetes", "Update")
        _patch(kube, item, {"annotations": dict.fromkeys(_HELMS), "managedFields": fields})


def _patch(kube: Kubectl, item: KubernetesObject, head: dict[str, Any]) -> None:
    """Change the metadata of one object, unless it changed since it was read."""
    where = item["metadata"]
    namespace = ["-n", where["namespace"]] if "namespace" in where else []
    group, slash, version = item["apiVersion"].partition("/")
    resource = f"{item['kind']}.{version}.{group}" if slash else item["kind"]
    patch = json.dumps({"metadata": {**head, "resourceVersion": where["resourceVersion"]}})
    kube.run("patch", resource, where["name"], *namespace, f"--field-manager={US}", "--type=merge", "-p", patch)
