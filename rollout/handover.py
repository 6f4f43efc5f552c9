"""Who owns what, before an engine goes to work: fields that people or another engine set, and objects left behind."""

import json
from collections.abc import Sequence
from typing import Any

from . import managed_fields
from .kubectl import Kubectl, KubernetesObject, as_list
from .live import Key, as_made, key, with_scale

AUTOSCALED = "tidegate-autoscaled"
"""Who owns the replicas of a workload from the moment an autoscaler is declared until that sets them itself."""
MENDING = "tidegate-mending"
"""Who takes away what people added."""
US = "tidegate"
"""Who changes what objects say about their owners."""
HELM_NAME = "meta.helm.sh/release-name"
HELM_NAMESPACE = "meta.helm.sh/release-namespace"
HELM_POLICY = "helm.sh/resource-policy"


def mend(kube: Kubectl, rendered: Sequence[KubernetesObject], live: Sequence[KubernetesObject]) -> list[str]:
    """Take away what people added to objects by hand, and return the objects' names.

    No engine does that: each of them takes away only what it had set itself. What people changed or removed, every
    engine mends.
    """
    declared = {key(item): item for item in rendered}
    added: dict[Key, tuple[KubernetesObject, list[managed_fields.Path]]] = {}
    for item in live:
        if key(item) in declared:
            wanted = with_scale(declared[key(item)], item)
            by_hand = managed_fields.by_hand(item)
            if paths := [path for path in managed_fields.left_over(item, wanted) if path in by_hand]:
                added[key(item)] = item, paths
    fresh = as_made(kube, [declared[name] for name in added])
    bare, names = [], []
    for name, (item, paths) in added.items():
        # Whoever replaced a whole object owns its defaults too: these are as they should be.
        differing = [path for path in paths if managed_fields.differ(item, fresh.get(name, item), path)]
        if differing:
            _patch(kube, item, {"managedFields": managed_fields.handed_over(item, differing, MENDING)})
            bare.append(_bare(item))
            names.append(f"{item['kind']} {item['metadata']['name']}")
    if bare:
        # Whoever applies an object without the fields that are his alone takes them away.
        command = ["apply", "--server-side", "--validate=false", f"--field-manager={MENDING}"]
        kube.run(*command, "-f", "-", stdin=as_list(bare))
    return names


def _bare(item: KubernetesObject) -> KubernetesObject:
    head = {field: item["metadata"][field] for field in ("name", "namespace") if field in item["metadata"]}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": head}


def keep_scale(kube: Kubectl, rendered: Sequence[KubernetesObject], live: Sequence[KubernetesObject]) -> None:
    """Keep the replicas of workloads that are to be scaled automatically from now on.

    An engine that no longer sets them would take them away, and one replica is what the API server sets instead.
    """
    declared = {key(item): item for item in rendered}
    scaled = [
        {**_bare(item), "spec": {"replicas": item["spec"]["replicas"]}}
        for item in live
        if key(item) in declared
        and with_scale(declared[key(item)], item) != declared[key(item)]
        and _engine_sets_replicas(item)
    ]
    if scaled:
        command = ["apply", "--server-side", "--validate=false", f"--field-manager={AUTOSCALED}"]
        kube.run(*command, "-f", "-", stdin=as_list(scaled))


def _engine_sets_replicas(item: KubernetesObject) -> bool:
    owner = managed_fields.owner(item)
    return owner is not None and "f:replicas" in owner.fields.get("f:spec", {})


def prune(kube: Kubectl, gone: Sequence[KubernetesObject]) -> None:
    """Delete objects of a stack that nobody declares any more, those that are still there.

    An engine does this for what it knows; a run that was killed may have made objects that it does not know.
    """
    if gone:
        kube.run(
            "delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=as_list([_bare(item) for item in gone])
        )


def helm_release(item: KubernetesObject) -> tuple[str, str] | None:
    """Return the name and the namespace of the Helm release that an object belongs to."""
    annotations = item["metadata"].get("annotations") or {}
    return (annotations[HELM_NAME], annotations.get(HELM_NAMESPACE, "")) if HELM_NAME in annotations else None


def to_helm(kube: Kubectl, live: Sequence[KubernetesObject], release: tuple[str, str]) -> None:
    """Make objects a Helm release's, whichever engine had them. Nothing that pods see is changed."""
    for item in live:
        annotations = {HELM_NAME: release[0], HELM_NAMESPACE: release[1]}
        labels = {"app.kubernetes.io/managed-by": "Helm"}
        fields = managed_fields.of_engine(item, "helm", "Apply")
        _patch(kube, item, {"annotations": annotations, "labels": labels, "managedFields": fields})


def to_pulumi(kube: Kubectl, live: Sequence[KubernetesObject]) -> None:
    """Make objects Pulumi's, as if it had made them; it then adopts them. Nothing that pods see is changed."""
    for item in live:
        annotations = dict.fromkeys((HELM_NAME, HELM_NAMESPACE, HELM_POLICY))
        fields = managed_fields.of_engine(item, "pulumi-kubernetes", "Update")
        _patch(kube, item, {"annotations": annotations, "managedFields": fields})


def _patch(kube: Kubectl, item: KubernetesObject, head: dict[str, Any]) -> None:
    """Change the metadata of one object, if it is still as it was read."""
    where = item["metadata"]
    namespace = ["-n", where["namespace"]] if "namespace" in where else []
    group, slash, _ = item["apiVersion"].partition("/")
    resource = f"{item['kind']}.{item['apiVersion'].partition('/')[2]}.{group}" if slash else item["kind"]
    patch = {"metadata": {**head, "resourceVersion": where["resourceVersion"]}}
    kube.run(
        "patch", resource, where["name"], *namespace, f"--field-manager={US}", "--type=merge", "-p", json.dumps(patch)
    )
