"""Dynamo frontends that all workers of a server share. They find each other through Kubernetes."""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import dynamo, openai
from tidegate_contracts.labels import LOADING, POOL, ROLE, SERVER

from stacks.definition.environment import Mesh
from stacks.definition.openai import FRONTENDS, DynamoSettings, Frontends
from stacks.definition.pods import Pods

from .. import pods
from ..args import GRACE_SECONDS, OpenaiServerArgs, PoolArgs
from ..gpu_placement import NO_GPU
from ..naming import Naming, Texts, pool_headless_name, service_account
from ..values import each, either, joined, merged, none_if_empty, of_kind, total, when
from .relay import HOME, relay

Made = TypeVar("Made")
_DISK = "1Gi"  # For the log, and the tokenizers of models that it fetches.
_MIGRATIONS = 3
"""How often a request can move to another worker when its worker is gone. Dynamo's default is never."""
NAMESPACE: Final = "$(POD_SERVER)_$(POD_POOL)"
"""Dynamo's namespace of a worker. Workers of one namespace share their calls, whatever their models are. Kubernetes
fills it in from the pod's labels. Server names have no underscore."""
_SETTLED_SECONDS = 10
"""Time in which a new frontend finds all workers, before an old one stops."""


def shared(server: Any, make: Callable[[Frontends], Made], otherwise: Callable[[], Any] = lambda: None) -> Any:
    """Return the result of `make` for a server's shared frontends, or that of `otherwise` if it has none."""
    return of_kind(server.openai, DynamoSettings, lambda it: either(it.frontends, make, otherwise), otherwise)


def service_of(server: Any, pool: PoolArgs, make: Callable[[str], str]) -> str:
    """Return the result of `make` for the name of the Service for a pool's calls: the frontends', or the pool's."""
    own = pool_headless_name(server.name, pool.name)
    return cast("str", shared(server, lambda _: make(f"{server.name}-{FRONTENDS}"), lambda: make(own)))


def volumes(server: Any) -> list[Any] | None:
    """Return the volume with the token for the Kubernetes API, if frontends are shared."""
    return cast("list[Any] | None", shared(server, lambda _: [dynamo.TOKEN]))


def mounts(server: Any) -> list[k8s.core.v1.VolumeMountArgs] | None:
    """Return the mount of that volume, for a container that uses the API."""
    return cast(
        "list[k8s.core.v1.VolumeMountArgs] | None",
        shared(server, lambda _: [pods.mount(str(dynamo.TOKEN["name"]), dynamo.TOKEN_ROOT)]),
    )


def discovery(values: dict[str, str]) -> list[k8s.core.v1.EnvVarArgs]:
    """Return the variables of a frontend or a worker that uses the API: its identity, and `values`."""
    fields = {f"POD_{field.upper()}": f"metadata.{field}" for field in ("name", "namespace", "uid")}
    fields |= {"POD_SERVER": f"metadata.labels['{SERVER}']", "POD_POOL": f"metadata.labels['{POOL}']"}
    return joined(
        [
            k8s.core.v1.EnvVarArgs(
                name=name,
                value_from=k8s.core.v1.EnvVarSourceArgs(field_ref=k8s.core.v1.ObjectFieldSelectorArgs(field_path=path)),
            )
            for name, path in fields.items()
        ],
        pods.variables({"DYN_DISCOVERY_BACKEND": "kubernetes", **dynamo.MESSAGES, **values}),
    )


class OpenaiFrontends(pulumi.ComponentResource):
    """A Deployment of Dynamo frontends with its Service, budget, network policies, and Role for finding workers."""

    def __init__(
        self,
        name: str,
        server: OpenaiServerArgs,
        it: DynamoSettings,
        frontends: Frontends,
        naming: Naming,
        every_pod: Pods,
        mesh: Mesh | None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tidegate:components:OpenaiFrontends", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        selector = naming.pool_selector(server.kind, server.name, FRONTENDS)
        labels = naming.labels(server.kind, selector)

        def metadata(suffix: str = FRONTENDS) -> Any:
            return naming.metadata(f"{server.name}-{suffix}", labels)

        rights = _rights(name, server, naming, child)
        boundary = _boundary(name, server, naming, metadata, selector, child)
        ports = [pods.service_port("http", openai.HTTP_PORT, openai.HTTP_PORT)]
        pods.service(f"{name}-service", metadata(), selector, ports, child, cluster_ip="None")
        k8s.apps.v1.Deployment(
            f"{name}-deployment",
            metadata=metadata(),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=frontends.replicas,
                min_ready_seconds=_SETTLED_SECONDS,
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=selector),
                strategy=pods.new_before_old(),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(
                        labels=merged(
                            labels,
                            {ROLE: "server", LOADING: "preload"},
                            when(mesh, lambda _: {"sidecar.istio.io/inject": "false"}),
                        ),
                        annotations=none_if_empty(every_pod.annotations),
                    ),
                    spec=_pod(server, it, frontends, selector, every_pod),
                ),
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*rights, *boundary]),
        )
        pods.disruption_budget(f"{name}-budget", metadata(), selector, 1, child)
        self.register_outputs({})


def _rights(name: str, server: OpenaiServerArgs, naming: Naming, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    account = service_account(server.kind, server.name)
    labels = naming.labels(server.kind)
    return [
        k8s.rbac.v1.Role(
            f"{name}-role", metadata=naming.metadata(account, labels), rules=cast("Any", dynamo.RULES), opts=opts
        ),
        k8s.rbac.v1.RoleBinding(
            f"{name}-binding",
            metadata=naming.metadata(account, labels),
            role_ref=k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="Role", name=account),
            subjects=[k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=account, namespace=naming.namespace)],
            opts=opts,
        ),
    ]


def _boundary(
    name: str,
    server: OpenaiServerArgs,
    naming: Naming,
    metadata: Callable[[str], Any],
    selector: Texts,
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Let frontends connect to every port of the server's pods, because event ports are random, and workers to one."""
    every = {"app.kubernetes.io/instance": naming.environment, SERVER: server.name}
    responses, all_ports = [{"protocol": "TCP", "port": dynamo.RESPONSE_PORT}], [{"protocol": "TCP"}]

    def policy(suffix: str, these: Texts, others: Texts, ingress: list[Any], egress: list[Any]) -> pulumi.Resource:
        peer: Any = [{"podSelector": {"matchLabels": others}}]
        return k8s.networking.v1.NetworkPolicy(
            f"{name}-policy-{suffix}",
            metadata=metadata(suffix),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=these),
                policy_types=["Ingress", "Egress"],
                ingress=[k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=peer, ports=ingress)],
                egress=[k8s.networking.v1.NetworkPolicyEgressRuleArgs(to=peer, ports=egress)],
            ),
            opts=opts,
        )

    return [
        policy(FRONTENDS, selector, every, responses, all_ports),
        policy("workers", every, selector, all_ports, responses),
    ]


def _pod(
    server: OpenaiServerArgs, it: DynamoSettings, frontends: Frontends, selector: Texts, every_pod: Pods
) -> k8s.core.v1.PodSpecArgs:
    exit_seconds = it.exit_timeout_seconds
    tmp = pods.mount("tmp", "/tmp", read_only=False)
    return pods.pod_spec(
        service_account(server.kind, server.name),
        node_selector=none_if_empty(frontends.node_selector),
        tolerations=each(frontends.tolerations, pods.toleration),
        topology_spread_constraints=pods.spread_over_nodes(selector),
        # The pause before SIGTERM, then the time of streams in flight, then a margin.
        termination_grace_period_seconds=total(exit_seconds, GRACE_SECONDS),
        init_containers=[relay(server, every_pod, [f"http://127.0.0.1:{openai.HTTP_PORT}/metrics"])],
        containers=[
            pods.container(
                "frontend",
                server.image,
                every_pod,
                {"http": openai.HTTP_PORT, "answers": dynamo.RESPONSE_PORT},
                joined(
                    pods.variables({**HOME, **NO_GPU}),
                    discovery(
                        {
                            "DYN_NAMESPACE_PREFIX": "$(POD_SERVER)_",
                            "DYN_TCP_RESPONSE_STREAM_PORT": f"{dynamo.RESPONSE_PORT}",
                            "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": f"{exit_seconds}",
                            "DYN_MIGRATION_LIMIT": f"{_MIGRATIONS}",
                        }
                    ),
                ),
                command=["python3", "-m", dynamo.FRONTEND],
                args=joined([f"--http-port={openai.HTTP_PORT}"], frontends.extra_arguments),
                resources=pods.container_resources(it.frontend_resources, _DISK),
                # It is ready without any worker, because the proxies check each model.
                startup_probe=pods.http_probe("/live", "http", 1, failures=120),
                readiness_probe=pods.http_probe("/live", "http", 5, failures=3),
                liveness_probe=pods.http_probe("/live", "http", 10, failures=6, timeout_seconds=10),
                lifecycle=pods.pre_stop(),
                volume_mounts=joined([tmp], mounts(server)),
            )
        ],
        volumes=joined([pods.scratch_volume("tmp", _DISK)], volumes(server)),
    )
