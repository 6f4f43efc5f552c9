"""An environment: everything of Tidegate in one namespace."""

import pulumi
import pulumi_kubernetes as k8s

from stacks.definition.openai import DynamoSettings
from stacks.definition.proxy import PROXY
from stacks.definition.servers import GcpIdentity

from .args import EnvironmentArgs, OpenaiServerArgs, PoolArgs, PoolContext, ServerArgs, by_kind
from .dataset_volume import DatasetVolume
from .exposure import exposed_to
from .identity import account_annotations
from .monitoring import Monitoring
from .naming import RETAINED, Naming, Texts, service_account
from .network_boundary import Mesh, NetworkBoundary, namespace_peer
from .openai.frontends import OpenaiFrontends
from .openai.pool import OpenaiPool
from .proxy import Proxy
from .triton.pool import TritonPool
from .values import each, joined, merged, of_kind, when

POD_SECURITY = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}


class Environment(pulumi.ComponentResource):
    """One namespace with its proxy, its servers, their datasets and their boundary."""

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tidegate:components:Environment", name, None, opts)
        naming = Naming(args.name, args.namespace.name, args.called)  # The chart supports fields, not properties.
        # It holds the claims of the datasets, so Pulumi keeps it too.
        namespace = self._namespace(name, args, naming)
        inside = pulumi.ResourceOptions(parent=self, depends_on=[namespace])

        def account(owner: str, labels: Texts, annotations: Texts | None = None) -> k8s.core.v1.ServiceAccount:
            return k8s.core.v1.ServiceAccount(
                f"{name}-account-{owner}",
                metadata=naming.metadata(owner, labels, annotations),
                automount_service_account_token=False,
                image_pull_secrets=each(
                    args.pull_secrets, lambda secret: k8s.core.v1.LocalObjectReferenceArgs(name=secret.name)
                ),
                opts=inside,
            )

        # One account for the proxy and one for each server, so that each has only its own cloud identity.
        proxy_account = account(PROXY, naming.labels(PROXY))
        accounts = each(
            args.servers,
            lambda server: account(
                service_account(server.kind, server.name),
                naming.labels(server.kind),
                account_annotations(server.identity),
            ),
        )
        callers = joined(
            exposed_to(args.proxy.exposure),
            when(args.domino, lambda domino: [namespace_peer(domino.compute_namespace)]),
        )
        google = each(args.servers, lambda server: of_kind(server.identity, GcpIdentity, lambda _: server.name))
        boundary = NetworkBoundary(
            f"{name}-network", args.network, naming, callers, args.domino, args.mesh, google, inside
        )
        datasets = each(
            args.datasets, lambda dataset: DatasetVolume(f"{name}-dataset-{dataset.name}", dataset, naming, inside)
        )
        # Pods start after their accounts, their volumes and the network policies exist.
        first = joined([namespace, boundary, proxy_account], accounts, datasets)
        ready = pulumi.ResourceOptions(parent=self, depends_on=first)

        def pools(server: ServerArgs, kind: type[TritonPool | OpenaiPool]) -> object:
            def pool(pool: PoolArgs) -> object:
                policy, api_server = args.eviction_policy_image, args.network.api_server
                context = PoolContext(pool, server, naming, policy, args.pods, args.mesh, api_server)
                return kind(f"{name}-pool-{server.name}-{pool.name}", context, ready)

            return each(server.pools, pool)

        def frontends(server: OpenaiServerArgs) -> object:
            shared = f"{name}-shared-{server.name}"
            return of_kind(
                server.openai,
                DynamoSettings,
                lambda it: when(
                    it.frontends,
                    lambda found: OpenaiFrontends(shared, server, it, found, naming, args.pods, args.mesh, ready),
                ),
            )

        each(args.servers, lambda server: of_kind(server, OpenaiServerArgs, frontends))
        each(
            args.servers,
            lambda server: by_kind(
                server, lambda server: pools(server, TritonPool), lambda server: pools(server, OpenaiPool)
            ),
        )
        Proxy(f"{name}-proxy", args.proxy, naming, args.servers, args.pods, args.domino, args.mesh, ready)
        when(args.monitoring, lambda monitoring: Monitoring(f"{name}-monitoring", monitoring, naming, inside))
        when(args.mesh, lambda mesh: Mesh(f"{name}-mesh", mesh, naming, inside))
        self.register_outputs({})

    def _namespace(self, name: str, args: EnvironmentArgs, naming: Naming) -> k8s.core.v1.Namespace:
        return k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=args.namespace.name,
                labels=merged(
                    args.namespace.labels,
                    when(args.domino, lambda _: {"domino-compute": "true"}),
                    naming.labels("tidegate"),
                    POD_SECURITY,
                ),
                annotations=merged(args.namespace.annotations, RETAINED),
            ),
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
