"""An environment: everything of Tidegate in one namespace."""

from typing import Annotated

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field

from stacks.definition import Namespace, NamespaceLabels
from stacks.definition.base import Annotations, DnsLabel, ObjectName, Section
from stacks.definition.environment import Domino, PullSecret
from stacks.definition.environment import Monitoring as MonitoringSettings
from stacks.definition.proxy import PROXY
from stacks.definition.servers import GcpIdentity

from .args import ImageReference, PoolContext, ProxyArgs, ServerArgs
from .dataset_volume import DatasetVolume, DatasetVolumeArgs
from .exposure import exposed_to
from .identity import account_annotations
from .kinds import by_kind
from .monitoring import Monitoring
from .network_boundary import Mesh, NetworkBoundary, NetworkBoundaryArgs, namespace_peer
from .place import Place, Texts, service_account
from .proxy import Proxy
from .values import each, joined, merged, none_if_empty, of_kind, when

POD_SECURITY = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}


class NamespaceArgs(Section):
    """The namespace; Pod Security "restricted" is enforced in it."""

    name: Namespace
    """Its name."""
    labels: NamespaceLabels = Field(default_factory=dict)
    """Further labels."""
    annotations: Annotations = Field(default_factory=dict)
    """Its annotations."""


class ClaimArgs(Section):
    """A PersistentVolumeClaim that exists already; it is used and never changed."""

    name: ObjectName
    """Its name, in the environment's namespace."""


class EnvironmentArgs(Section):
    """A resolved environment: one environment on one data plane."""

    name: DnsLabel
    """Name of the environment, such as dev or prod; it is the label app.kubernetes.io/instance of every object."""
    namespace: NamespaceArgs
    """The namespace that the environment has to itself."""
    pull_secrets: tuple[PullSecret, ...] = ()
    """Secrets to pull images with."""
    datasets: tuple[DatasetVolumeArgs, ...] = ()
    """Volumes that hold model repositories."""
    claims: tuple[ClaimArgs, ...] = ()
    """Claims of volumes with model repositories that exist already."""
    eviction_policy_image: ImageReference | None = None
    """Image of the eviction policy, the container beside each replica; needed where a pool loads models on demand."""
    servers: Annotated[tuple[ServerArgs, ...], Field(min_length=1)]
    """Inference servers, their pools and their models."""
    proxy: ProxyArgs
    """The inference proxy."""
    network: NetworkBoundaryArgs = NetworkBoundaryArgs()
    """Who may talk to whom."""
    domino: Domino | None = None
    """Integration with a Domino platform."""
    monitoring: MonitoringSettings | None = None
    """Metrics and alerts by the Prometheus operator, which must be in the cluster."""

    @property
    def place(self) -> Place:
        """Where its objects stand."""
        return Place(self.name, self.namespace.name)


class Environment(pulumi.ComponentResource):
    """One namespace with its proxy, its servers, their datasets and their boundary."""

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the environment."""
        super().__init__("tidegate:components:Environment", name, None, opts)
        place = Place(args.name, args.namespace.name)
        # It holds the claims of the datasets, and is kept with them.
        namespace = self._namespace(name, args, place)
        inside = pulumi.ResourceOptions(parent=self, depends_on=[namespace])

        def account(owner: str, labels: Texts, annotations: Texts | None = None) -> k8s.core.v1.ServiceAccount:
            return k8s.core.v1.ServiceAccount(
                f"{name}-account-{owner}",
                metadata=place.metadata(owner, labels, annotations),
                automount_service_account_token=False,
                image_pull_secrets=each(
                    args.pull_secrets, lambda secret: k8s.core.v1.LocalObjectReferenceArgs(name=secret.name)
                ),
                opts=inside,
            )

        # One account for the proxy and one for each server, so that each has only its own identity in the cloud.
        proxy_account = account(PROXY, place.labels(PROXY))
        accounts = each(
            args.servers,
            lambda server: account(
                service_account(server.kind, server.name),
                place.labels(server.kind),
                account_annotations(server.identity),
            ),
        )
        callers = joined(
            exposed_to(args.proxy.exposure),
            when(args.domino, lambda domino: [namespace_peer(domino.compute_namespace)]),
        )
        google = each(args.servers, lambda server: of_kind(server.identity, GcpIdentity, lambda _: server.name))
        boundary = NetworkBoundary(f"{name}-network", args.network, place, callers, args.domino, google, inside)
        datasets = each(
            args.datasets, lambda dataset: DatasetVolume(f"{name}-dataset-{dataset.name}", dataset, place, inside)
        )
        # Pods start where their account and their volumes exist, and what nobody may do is refused already.
        first = joined([namespace, boundary, proxy_account], accounts, datasets)
        ready = pulumi.ResourceOptions(parent=self, depends_on=first)
        each(
            args.servers,
            lambda server: by_kind(
                server,
                lambda kind, server: each(
                    server.pools,
                    lambda pool: kind.declare_pool(
                        f"{name}-pool-{server.name}-{pool.name}",
                        PoolContext(pool, server, place, args.eviction_policy_image, args.domino),
                        ready,
                    ),
                ),
            ),
        )
        Proxy(f"{name}-proxy", args.proxy, place, args.servers, args.domino, ready)
        when(args.monitoring, lambda monitoring: Monitoring(f"{name}-monitoring", monitoring, place, inside))
        when(args.domino, lambda domino: when(domino.mesh, lambda mesh: Mesh(f"{name}-mesh", mesh, place, inside)))
        self.register_outputs({})

    def _namespace(self, name: str, args: EnvironmentArgs, place: Place) -> k8s.core.v1.Namespace:
        return k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=args.namespace.name,
                labels=merged(
                    args.namespace.labels,
                    when(args.domino, lambda _: {"domino-compute": "true"}),
                    place.labels("tidegate"),
                    POD_SECURITY,
                ),
                annotations=none_if_empty(args.namespace.annotations),
            ),
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
