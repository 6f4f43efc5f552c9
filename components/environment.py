"""An environment: everything of Tidegate in one namespace."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input
from tidegate_contracts import proxy_process

from .dataset_volume import DatasetVolume, DatasetVolumeArgs
from .monitoring import Monitoring, MonitoringArgs
from .network_boundary import NetworkBoundary, NetworkBoundaryArgs
from .pods import metadata
from .proxy import Proxy, ProxyArgs
from .triton_pool import TritonPool, TritonPoolArgs
from .values import Labels, each, joined, when


@dataclass(frozen=True, kw_only=True)
class NamespaceArgs:
    """The namespace, with its Pod Security labels."""

    name: Input[str]
    labels: Labels
    annotations: Labels | None = None


@dataclass(frozen=True, kw_only=True)
class PullSecretArgs:
    """A secret to pull images with."""

    name: Input[str]


@dataclass(frozen=True, kw_only=True)
class ServiceAccountArgs:
    """Whom pods act as; its token is never mounted."""

    name: str
    labels: Labels
    annotations: Labels | None = None
    """Cloud identity."""
    pull_secrets: Sequence[PullSecretArgs] = ()


@dataclass(frozen=True, kw_only=True)
class MeshArgs:
    """Istio's PeerAuthentication of the proxy."""

    name: Input[str]
    labels: Labels
    selector: Labels
    mtls: Input[str]


@dataclass(frozen=True, kw_only=True)
class EnvironmentArgs:
    """A resolved environment: one environment on one data plane, with everything that follows computed."""

    namespace: NamespaceArgs
    service_accounts: Sequence[ServiceAccountArgs]
    datasets: Sequence[DatasetVolumeArgs]
    network: NetworkBoundaryArgs
    pools: Sequence[TritonPoolArgs]
    proxy: ProxyArgs
    monitoring: MonitoringArgs | None = None
    mesh: MeshArgs | None = None


class Environment(pulumi.ComponentResource):
    """One namespace with its proxy, its servers, their datasets and their boundary."""

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the environment."""
        super().__init__("tidegate:components:Environment", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=args.namespace.name, labels=args.namespace.labels, annotations=args.namespace.annotations
            ),
            opts=child,
        )
        inside = pulumi.ResourceOptions(parent=self, depends_on=[namespace])
        accounts = each(
            args.service_accounts,
            lambda account: k8s.core.v1.ServiceAccount(
                f"{name}-account-{account.name}",
                metadata=metadata(account.name, args.namespace.name, account.labels, account.annotations),
                automount_service_account_token=False,
                image_pull_secrets=each(
                    account.pull_secrets, lambda secret: k8s.core.v1.LocalObjectReferenceArgs(name=secret.name)
                ),
                opts=inside,
            ),
        )
        boundary = NetworkBoundary(f"{name}-network", args.network, inside)
        datasets = each(
            args.datasets,
            lambda dataset: DatasetVolume(f"{name}-dataset-{dataset.claim_name}", dataset, inside),
        )
        # Pods start where their account and their volumes exist, and what nobody may do is refused already.
        ready = pulumi.ResourceOptions(parent=self, depends_on=joined([namespace, boundary], accounts, datasets))
        each(args.pools, lambda pool: TritonPool(f"{name}-pool-{pool.name}", pool, ready))
        Proxy(f"{name}-proxy", args.proxy, ready)
        when(args.monitoring, lambda monitoring: Monitoring(f"{name}-monitoring", monitoring, inside))
        when(
            args.mesh,
            lambda mesh: k8s.apiextensions.CustomResource(
                f"{name}-mesh",
                api_version="security.istio.io/v1",
                kind="PeerAuthentication",
                metadata=metadata(mesh.name, args.namespace.name, mesh.labels),
                spec={
                    "selector": {"matchLabels": mesh.selector},
                    "mtls": {"mode": mesh.mtls},
                    "portLevelMtls": {str(proxy_process.ADMIN_PORT): {"mode": "PERMISSIVE"}},
                },
                opts=inside,
            ),
        )
        self.register_outputs({})
