"""Names, labels and selectors of an environment's objects. No other module makes them."""

from dataclasses import dataclass
from typing import Any, Final

from tidegate_contracts.labels import LOADING, POOL, ROLE, SERVER

from stacks.definition.proxy import PROXY

from .values import none_if_empty

PROXY_HEADLESS: Final = f"{PROXY}-headless"
STAGING: Final = "staging"
"""Name of the pod volume in which models are staged."""

Texts = dict[str, Any]
RETAINED: Final = {
    "helm.sh/resource-policy": "keep",
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
"""Annotations of objects with data: Helm, Argo CD and Flux keep such an object when it is no longer rendered."""


@dataclass(frozen=True)
class Naming:
    """An environment's namespace, and its name, which is a label of its pods."""

    environment: str
    namespace: str
    called: str | None = None  # The name for clients, if it differs.

    def labels(self, name: str, more: Texts | None = None) -> Texts:
        """Return the labels of every object, and more."""
        return {
            "app.kubernetes.io/name": name,
            "app.kubernetes.io/instance": self.environment,
            "app.kubernetes.io/part-of": "tidegate",
            "app.kubernetes.io/managed-by": "tidegate",
            **(more or {}),
        }

    def metadata(self, name: str, labels: Texts | None, annotations: Texts | None = None) -> Any:
        import pulumi_kubernetes as k8s  # Here, because other code needs names and labels without Pulumi's SDK.

        return k8s.meta.v1.ObjectMetaArgs(
            name=name, namespace=self.namespace, labels=labels, annotations=none_if_empty(annotations)
        )

    @property
    def proxy_selector(self) -> Texts:
        return {"app.kubernetes.io/name": PROXY, "app.kubernetes.io/instance": self.environment}

    @property
    def server_selector(self) -> Texts:
        return {"app.kubernetes.io/instance": self.environment, ROLE: "server"}

    @property
    def on_demand_selector(self) -> Texts:
        return {**self.server_selector, LOADING: "on-demand"}

    def pool_selector(self, kind: str, server: str, pool: str) -> Texts:
        return {
            "app.kubernetes.io/name": kind,
            "app.kubernetes.io/instance": self.environment,
            SERVER: server,
            POOL: pool,
        }


def pool_headless_name(server: str, pool: str) -> str:
    """Return the name of the Service whose addresses are the pool's replicas."""
    return f"{server}-{pool}-headless"


def service_account(kind: str, server: str) -> str:
    """Return the name of the service account of a server's pods."""
    return f"{kind}-{server}"
