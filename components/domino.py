"""Integration with a Domino platform in the same cluster, and with the mesh that it may run in."""

from dataclasses import dataclass
from typing import Any, Literal

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import proxy_process

from .fields import DnsLabel
from .place import PROXY, Place

ISTIOD_PORTS = (15012, 15010)


@dataclass(frozen=True, kw_only=True)
class MeshArgs:
    """Istio: the proxy gets a sidecar, the servers get none."""

    mtls: Literal["PERMISSIVE", "STRICT"]
    """PERMISSIVE also takes plain callers; STRICT only those in the mesh."""
    namespace: DnsLabel
    """Namespace of the mesh's control plane."""


@dataclass(frozen=True, kw_only=True)
class DominoArgs:
    """Integration with a Domino platform."""

    platform_namespace: DnsLabel
    """Namespace of the platform's services."""
    compute_namespace: DnsLabel
    """Namespace of workspaces, jobs and model endpoints; its pods may call the proxy."""
    mesh: MeshArgs | None = None
    """Istio settings, where the platform runs with it."""


class Mesh(pulumi.ComponentResource):
    """What the mesh is told of the proxy: a PeerAuthentication."""

    def __init__(self, name: str, args: MeshArgs, place: Place, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare who may come in without a certificate of the mesh: Prometheus and the kubelet."""
        super().__init__("tidegate:components:Mesh", name, None, opts)
        spec: dict[str, Any] = {
            "selector": {"matchLabels": place.proxy_selector},
            "mtls": {"mode": args.mtls},
            "portLevelMtls": {str(proxy_process.ADMIN_PORT): {"mode": "PERMISSIVE"}},
        }
        k8s.apiextensions.CustomResource(
            f"{name}-proxy",
            api_version="security.istio.io/v1",
            kind="PeerAuthentication",
            metadata=place.metadata(PROXY, place.labels(PROXY)),
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
