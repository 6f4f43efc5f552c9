"""The order in which Kubernetes objects can be applied: what others need comes first."""

from typing import Any

APPLY_ORDER = (
    "Namespace", "ServiceAccount", "Role", "RoleBinding", "PersistentVolume", "PersistentVolumeClaim", "ConfigMap",
    "NetworkPolicy", "PeerAuthentication", "Certificate", "ResourceClaimTemplate", "Service", "Deployment",
    "StatefulSet", "PodDisruptionBudget", "HorizontalPodAutoscaler", "ScaledObject", "Ingress", "HTTPRoute",
    "PodMonitor", "PrometheusRule",
)  # fmt: skip


def apply_key(item: dict[str, Any]) -> tuple[int, str, str, str]:
    """Return what sorts an object into the order of application; kinds that are not known come last."""
    kind = item["kind"]
    rank = APPLY_ORDER.index(kind) if kind in APPLY_ORDER else len(APPLY_ORDER)
    return rank, kind, item["metadata"].get("namespace", ""), item["metadata"]["name"]
