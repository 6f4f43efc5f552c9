"""Ownership, before an engine goes to work: fields that people or another engine set, and objects left behind."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import managed_fields
from .changes.compare import identity
from .kubectl import Kubectl, KubernetesObject, as_list
from .live import created_from, with_scale

AUTOSCALED = "tidegate-autoscaled"
"""Field manager of a workload's replicas from when an autoscaler is declared until that sets them itself."""
MENDING = "tidegate-mending"  # Field manager that takes away what people added.
US = "tidegate"  # Field manager of what objects say about their owners.
_HELMS = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")


def mend(kube: Kubectl, rendered: Sequence[KubernetesObject], live: Sequence[KubernetesObject]) -> None:
    """Take away what people added to objects by hand.

    No engine does that: each of them takes away only what it had set itself. What people changed or removed, every
    engine mends.
    """
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
        # A manager that replaced a whole object owns its defaults too: these are as they should be.
        find, other = managed_fields.find, fresh.get(identity(item), item)
        if differing := [path for path in paths if find(item, path) != find(other, path)]:
            _patch(kube, item, {"managedFields": managed_fields.handed_over(item, differing, MENDING)})
            bare.append(_bare(item))
    # A manager that applies an object without the fields that it alone owns takes them away.
    _apply(kube, bare, MENDING)


def _apply(kube: Kubectl, objects: Sequence[KubernetesObject], manager: str) -> None:
    if objects:
        how = ("--server-side", "--validate=false", f"--field-manager={manager}")
        kube.run("apply", *how, "-f", "-", stdin=as_list(objects))


def _bare(item: KubernetesObject) -> KubernetesObject:
    head = {field: item["metadata"][field] for field in ("name", "namespace") if field in item["metadata"]}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": head}


def keep_scale(kube: Kubectl, rendered: Sequence[KubernetesObject], live: Sequence[KubernetesObject]) -> None:
    """Keep the replicas of workloads that are to be scaled automatically from now on.

    An engine that no longer sets them would take them away, and one replica is what the API server sets instead.
    """
    declared = {identity(item): item for item in rendered}
    scaled = []
    for item in (item for item in live if identity(item) in declared):
        wanted, owner = declared[identity(item)], managed_fields.owner(item)
        engine_sets = owner is not None and "f:replicas" in owner.fields.get("f:spec", {})
        if engine_sets and with_scale(wanted, item) != wanted:
            scaled.append({**_bare(item), "spec": {"replicas": item["spec"]["replicas"]}})
    _apply(kube, scaled, AUTOSCALED)


def prune(kube: Kubectl, gone: Sequence[KubernetesObject]) -> None:
    """Delete objects of a stack that nobody declares any more, those that are still there.

    An engine does this for what it knows; a run that was killed may have made objects that it does not know.
    """
    if gone:
        bare = [_bare(item) for item in gone]
        kube.run("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=as_list(bare))


def to_helm(kube: Kubectl, live: Sequence[KubernetesObject], marks: Mapping[str, Any]) -> None:
    """Make objects a Helm release's by its marks, whichever engine had them. Nothing that pods see is changed."""
    for item in live:
        _patch(kube, item, {**marks, "managedFields": managed_fields.of_engine(item, "helm", "Apply")})


def to_pulumi(kube: Kubectl, live: Sequence[KubernetesObject]) -> None:
    """Make objects Pulumi's, as if it had made them; it then adopts them. Nothing that pods see is changed."""
    for item in live:
        fields = managed_fields.of_engine(item, "pulumi-kubernetes", "Update")
        _patch(kube, item, {"annotations": dict.fromkeys(_HELMS), "managedFields": fields})


def _patch(kube: Kubectl, item: KubernetesObject, head: dict[str, Any]) -> None:
    """Change the metadata of one object, if it is still as it was read."""
    where = item["metadata"]
    namespace = ["-n", where["namespace"]] if "namespace" in where else []
    group, slash, version = item["apiVersion"].partition("/")
    resource = f"{item['kind']}.{version}.{group}" if slash else item["kind"]
    patch = json.dumps({"metadata": {**head, "resourceVersion": where["resourceVersion"]}})
    kube.run("patch", resource, where["name"], *namespace, f"--field-manager={US}", "--type=merge", "-p", patch)
