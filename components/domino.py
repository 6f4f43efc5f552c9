"""Integration with a Domino platform in the same cluster, and with the mesh that it may run in."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import proxy_process

from stacks.definition.environment import Mesh as MeshSettings
from stacks.definition.proxy import PROXY

from .place import Place

ISTIOD_PORTS = (15012, 15010)


class Mesh(pulumi.ComponentResource):
    """What the mesh is told of the proxy: a PeerAuthentication."""

    def __init__(self, name: str, args: MeshSettings, place: Place, opts: pulumi.ResourceOptions | None = None) -> None:
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
