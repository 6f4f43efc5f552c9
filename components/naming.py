"""Where an environment's objects stand, and what they are called: names, labels and selectors, each made here only."""

from dataclasses import dataclass
from typing import Any, Final

from tidegate_contracts.labels import LOADING, POOL, ROLE, SERVER

from stacks.definition.proxy import PROXY

from .values import none_if_empty

PROXY_HEADLESS: Final = f"{PROXY}-headless"
STAGING: Final = "staging"
"""Name of the volume, in a pod, that models are staged in."""

Texts = dict[str, Any]
RETAINED: Final = {
    "helm.sh/resource-policy": "keep",
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
"""Annotations of objects that hold data: Helm, Argo CD and Flux keep such an object when it is no longer rendered."""


@dataclass(frozen=True)
class Naming:
    """An environment's namespace, and the environment's name, which tells its pods from those of others."""

    environment: str
    namespace: str
    called: str | None = None  # What clients call the environment, where that is another name.

    def labels(self, name: str, more: Texts | None = None) -> Texts:
        """Return the labels that every object carries, and more."""
        return {
            "app.kubernetes.io/name": name,
            "app.kubernetes.io/instance": self.environment,
            "app.kubernetes.io/part-of": "tidegate",
            "app.kubernetes.io/managed-by": "tidegate",
            **(more or {}),
        }

    def metadata(self, name: str, labels: Texts | None, annotations: Texts | None = None) -> Any:
        """Return an object's metadata."""
        import pulumi_kubernetes as k8s  # not before: names and labels are needed without Pulumi's SDK, too

        return k8s.meta.v1.ObjectMetaArgs(
            name=name, namespace=self.namespace, labels=labels, annotations=none_if_empty(annotations)
        )

    @property
    def proxy_selector(self) -> Texts:
        """Labels by which the proxy's pods are found."""
        return {"app.kubernetes.io/name": PROXY, "app.kubernetes.io/instance": self.environment}

    @property
    def server_selector(self) -> Texts:
        """Labels by which the pods of all servers are found."""
        return {"app.kubernetes.io/instance": self.environment, ROLE: "server"}

    @property
    def on_demand_selector(self) -> Texts:
        """Labels by which the pods with an eviction policy are found."""
        return {**self.server_selector, LOADING: "on-demand"}

    def pool_selector(self, kind: str, server: str, pool: str) -> Texts:
        """Return the labels by which a pool's pods are found."""
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
    """Return the name of the account of a server's pods."""
    return f"{kind}-{server}"
