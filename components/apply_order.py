"""The order in which Kubernetes objects can be applied: objects that others need come first."""

from typing import Any

APPLY_ORDER = (
    "Namespace", "ServiceAccount", "Role", "RoleBinding", "PersistentVolume", "PersistentVolumeClaim", "ConfigMap",
    "NetworkPolicy", "PeerAuthentication", "Certificate", "ResourceClaimTemplate", "Service", "Deployment",
    "StatefulSet", "PodDisruptionBudget", "HorizontalPodAutoscaler", "ScaledObject", "Ingress", "HTTPRoute",
    "PodMonitor", "PrometheusRule",
)  # fmt: skip


def apply_key(item: dict[str, Any]) -> tuple[int, str, str, str]:
    """Return a sort key for the order of application. Unknown kinds come last."""
    kind = item["kind"]
    rank = APPLY_ORDER.index(kind) if kind in APPLY_ORDER else len(APPLY_ORDER)
    return rank, kind, item["metadata"].get("namespace", ""), item["metadata"]["name"]
