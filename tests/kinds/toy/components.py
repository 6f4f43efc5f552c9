"""The objects of a pool of toys: a StatefulSet and the Service of its replicas."""

from collections.abc import Callable
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts.labels import LOADING, ROLE

from components import pods
from components.args import PoolArgs, PoolContext, ServerArgs
from components.place import pool_headless_name, service_account

from .stacks import ToyServerArgs

HTTP_PORT, GRPC_PORT, METRICS_PORT = 7000, 7001, 7002


class ToyPool(pulumi.ComponentResource):
    """A StatefulSet of toys, and the Service whose addresses are its replicas."""

    def __init__(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tidegate:tests:ToyPool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        server = cast("ToyServerArgs", pool.server)
        ports = [pods.service_port("http", HTTP_PORT, "http"), pods.service_port("grpc", GRPC_PORT, "grpc")]
        metadata = pool.place.metadata(pool.headless_name, pool.labels)
        pods.service(f"{name}-headless", metadata, pool.selector, ports, child, cluster_ip="None")
        toy = k8s.core.v1.ContainerArgs(name="toy", image=server.image, args=["--greeting", f"{server.toy.greeting}!"])
        labels = {**pool.labels, ROLE: "server", LOADING: pool.args.loading.mode}
        spec = k8s.core.v1.PodSpecArgs(
            service_account_name=service_account(server.kind, server.name),
            containers=[toy],
        )
        k8s.apps.v1.StatefulSet(
            f"{name}-toys",
            metadata=pool.place.metadata(pool.name, pool.labels),
            spec=k8s.apps.v1.StatefulSetSpecArgs(
                service_name=pool.headless_name,
                replicas=pool.args.replicas,
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=pool.selector),
                template=k8s.core.v1.PodTemplateSpecArgs(metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels), spec=spec),
            ),
            opts=child,
        )
        self.register_outputs({})


class ToyKind:
    """See `components.kinds.ServerKind`."""

    args: type[ServerArgs] = ToyServerArgs
    http_port = HTTP_PORT
    grpc_port = GRPC_PORT
    metrics_port = METRICS_PORT
    metrics_path = "/toy/metrics"

    def live_path(self, server: ToyServerArgs) -> None:
        """All of them have it where the proxy knows it."""

    def grpc_tls(self, server: ToyServerArgs) -> None:
        """The toy's gRPC is plain."""

    def service(self, server: ToyServerArgs, pool: PoolArgs, make: Callable[[str], str]) -> str:
        return make(pool_headless_name(server.name, pool.name))

    def declare_shared(self, *_: Any) -> None:
        """Toys share nothing."""

    def declare_pool(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions) -> None:
        ToyPool(name, pool, opts)
