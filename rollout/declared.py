"""An object as it is declared: without what the API server, controllers and engines note on it."""

from .kubectl import KubernetesObject

Key = tuple[str, str, str]
_SET_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "managedFields")
_BOOK_KEEPING = (
    "meta.helm.sh/",
    "helm.sh/resource-policy",
    "pulumi.com/",
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/",
    "pv.kubernetes.io/",
)
"""Annotations of engines and controllers: they say nothing about what is declared."""
_BOOK_LABELS = ("app.kubernetes.io/managed-by", "kubernetes.io/metadata.name")


def key(item: KubernetesObject) -> Key:
    """Return what identifies an object among those of a stack."""
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def clean(item: KubernetesObject) -> KubernetesObject:
    """Return an object as it is declared: without what the API server, controllers and engines note on it."""
    result = {name: value for name, value in item.items() if name != "status"}
    head = {name: value for name, value in item["metadata"].items() if name not in _SET_BY_SERVER}
    for field, dropped in (("annotations", _BOOK_KEEPING), ("labels", _BOOK_LABELS)):
        kept = {name: value for name, value in (head.pop(field, None) or {}).items() if not name.startswith(dropped)}
        if kept:
            head[field] = kept
    return {**result, "metadata": head}
