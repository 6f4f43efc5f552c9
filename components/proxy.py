"""The inference proxy: the one door to every model of an environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input
from tidegate_contracts import proxy_process

from . import pods
from .gpu_placement import TolerationArgs, tolerations
from .scaling import CpuScalingArgs, cpu_autoscaler
from .triton_pool import SecretArgs
from .values import Labels, checksum, each, joined, json_text, when

CONFIG_CHECKSUM = "tidegate.dev/settings-checksum"
"""Pod annotation that changes with the settings, so that new settings start new pods."""


@dataclass(frozen=True, kw_only=True)
class IngressArgs:
    """Exposure by an Ingress."""

    host: Input[str]
    path: Input[str]
    class_name: Input[str] | None = None
    annotations: Labels | None = None
    tls: SecretArgs | None = None


@dataclass(frozen=True, kw_only=True)
class HttpRouteArgs:
    """Exposure by a Gateway."""

    host: Input[str]
    path: Input[str]
    parent: Labels
    """The Gateway, and the listener of it, as a `parentRef`."""


@dataclass(frozen=True, kw_only=True)
class CertificateArgs:
    """A certificate that cert-manager issues."""

    secret: Input[str]
    dns_names: Sequence[Input[str]]
    issuer: Input[str]
    issuer_kind: Input[str]


@dataclass(frozen=True, kw_only=True)
class UpstreamCaArgs:
    """The secret whose `ca.crt` vouches for one server."""

    server: Input[str]
    secret: Input[str]
    file: Input[str]


@dataclass(frozen=True, kw_only=True)
class ServiceArgs:
    """The proxy's Service."""

    type: Input[str]
    annotations: Labels | None = None
    source_ranges: Sequence[Input[str]] | None = None
    external_traffic_policy: Input[str] | None = None
    port_name: Input[str]
    """`http` or `https`."""
    port: Input[int]


@dataclass(frozen=True, kw_only=True)
class ProxyArgs:
    """The proxy; times are seconds."""

    name: Input[str]
    headless_name: Input[str]
    namespace: Input[str]
    labels: Labels
    selector: Labels
    pod_labels: Labels
    service_account: Input[str]
    image: Input[str]
    resources: Input[Any]
    node_selector: Labels | None = None
    tolerations: Sequence[TolerationArgs] = ()
    priority_class: Input[str] | None = None
    replicas: Input[int] | None = None
    """None where an autoscaler owns the number."""
    cpu_scaling: CpuScalingArgs | None = None
    settings_name: Input[str]
    settings: Mapping[str, str]
    """Environment variables."""
    routing_name: Input[str]
    routing: Mapping[str, Any]
    """`tidegate_contracts.routing.RoutingTable`, as it goes over the wire."""
    access: Mapping[str, Any]
    """`tidegate_contracts.routing.AccessTable`, likewise."""
    service: ServiceArgs
    ingress: IngressArgs | None = None
    http_route: HttpRouteArgs | None = None
    tls: SecretArgs | None = None
    certificate: CertificateArgs | None = None
    api_keys: SecretArgs | None = None
    upstream_cas: Sequence[UpstreamCaArgs] | None = None
    pre_stop: Input[int]
    grace_period: Input[int]


class Proxy(pulumi.ComponentResource):
    """A Deployment of proxies with its configuration, Service, exposure, budget and autoscaler."""

    def __init__(self, name: str, args: ProxyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the proxy."""
        super().__init__("tidegate:components:Proxy", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        settings = k8s.core.v1.ConfigMap(
            f"{name}-settings",
            metadata=pods.metadata(args.settings_name, args.namespace, args.labels),
            data=args.settings,
            opts=child,
        )
        routing = k8s.core.v1.ConfigMap(
            f"{name}-routing",
            metadata=pods.metadata(args.routing_name, args.namespace, args.labels),
            data={
                proxy_process.ROUTING_FILE: json_text(args.routing),
                proxy_process.ACCESS_FILE: json_text(args.access),
            },
            opts=child,
        )
        k8s.apps.v1.Deployment(
            f"{name}-deployment",
            metadata=pods.metadata(args.name, args.namespace, args.labels),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=args.replicas,
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=args.selector),
                strategy=k8s.apps.v1.DeploymentStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
                ),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(
                        labels=args.pod_labels, annotations={CONFIG_CHECKSUM: checksum(args.settings)}
                    ),
                    spec=_pod(args),
                ),
            ),
            # New pods read the settings once, when they start.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[settings, routing]),
        )
        _expose(name, args, child)
        k8s.policy.v1.PodDisruptionBudget(
            f"{name}-budget",
            metadata=pods.metadata(args.name, args.namespace, args.labels),
            spec=pods.disruption_budget_spec(args.selector, 1),
            opts=child,
        )
        when(
            args.cpu_scaling,
            lambda scaling: cpu_autoscaler(
                f"{name}-autoscaler", args.name, args.namespace, args.labels, "Deployment", scaling, child
            ),
        )
        self.register_outputs({})


def _pod(args: ProxyArgs) -> k8s.core.v1.PodSpecArgs:
    return k8s.core.v1.PodSpecArgs(
        service_account_name=args.service_account,
        automount_service_account_token=False,
        enable_service_links=False,
        security_context=pods.pod_security_context(),
        node_selector=args.node_selector,
        tolerations=tolerations(args.tolerations),
        topology_spread_constraints=pods.spread_over_nodes(args.selector),
        priority_class_name=args.priority_class,
        termination_grace_period_seconds=args.grace_period,
        containers=[_container(args)],
        volumes=joined(
            [pods.config_volume("routing", args.routing_name), pods.scratch_volume("tmp", "256Mi")],
            when(args.tls, lambda tls: [pods.secret_volume("tls", tls.secret)]),
            when(args.api_keys, lambda keys: [pods.secret_volume("api-keys", keys.secret)]),
            when(args.upstream_cas, lambda cas: [_upstream_ca_volume(cas)]),
        ),
    )


def _container(args: ProxyArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="proxy",
        image=args.image,
        command=["python", "-m", proxy_process.MODULE],
        env_from=[
            k8s.core.v1.EnvFromSourceArgs(config_map_ref=k8s.core.v1.ConfigMapEnvSourceArgs(name=args.settings_name))
        ],
        ports=[
            pods.container_port("http", proxy_process.HTTP_PORT),
            pods.container_port("grpc", proxy_process.GRPC_PORT),
            pods.container_port("admin", proxy_process.ADMIN_PORT),
        ],
        resources=args.resources,
        security_context=pods.container_security_context(),
        startup_probe=pods.http_probe(proxy_process.LIVE_PATH, "admin", period_seconds=1, failure_threshold=60),
        readiness_probe=pods.http_probe(proxy_process.READY_PATH, "admin", period_seconds=2, failure_threshold=2),
        liveness_probe=pods.http_probe(proxy_process.LIVE_PATH, "admin", period_seconds=10, failure_threshold=6),
        lifecycle=pods.pre_stop_sleep(args.pre_stop),
        volume_mounts=joined(
            [pods.mount("routing", proxy_process.ROUTING_ROOT), pods.mount("tmp", "/tmp", read_only=False)],
            when(args.tls, lambda _: [pods.mount("tls", proxy_process.TLS_ROOT)]),
            when(args.api_keys, lambda _: [pods.mount("api-keys", proxy_process.API_KEYS_ROOT)]),
            when(args.upstream_cas, lambda _: [pods.mount("upstream-ca", proxy_process.UPSTREAM_CA_ROOT)]),
        ),
    )


def _upstream_ca_volume(cas: Sequence[UpstreamCaArgs]) -> k8s.core.v1.VolumeArgs:
    return k8s.core.v1.VolumeArgs(
        name="upstream-ca",
        projected=k8s.core.v1.ProjectedVolumeSourceArgs(
            sources=joined(
                each(
                    cas,
                    lambda ca: k8s.core.v1.VolumeProjectionArgs(
                        secret=k8s.core.v1.SecretProjectionArgs(
                            name=ca.secret, items=[k8s.core.v1.KeyToPathArgs(key="ca.crt", path=ca.file)]
                        )
                    ),
                )
            )
        ),
    )


def _expose(name: str, args: ProxyArgs, child: pulumi.ResourceOptions) -> None:
    service = args.service
    k8s.core.v1.Service(
        f"{name}-service",
        metadata=pods.metadata(args.name, args.namespace, args.labels, service.annotations),
        spec=k8s.core.v1.ServiceSpecArgs(
            type=service.type,
            selector=args.selector,
            load_balancer_source_ranges=service.source_ranges,
            external_traffic_policy=service.external_traffic_policy,
            ports=[
                pods.service_port(service.port_name, service.port, "http"),
                pods.service_port("grpc", proxy_process.GRPC_SERVICE_PORT, "grpc"),
            ],
        ),
        opts=child,
    )
    # By its addresses a replica knows how many there are, and so its share of a rate limit.
    k8s.core.v1.Service(
        f"{name}-headless",
        metadata=pods.metadata(args.headless_name, args.namespace, args.labels),
        spec=k8s.core.v1.ServiceSpecArgs(
            cluster_ip="None",
            selector=args.selector,
            ports=[pods.service_port("http", proxy_process.HTTP_PORT, "http")],
        ),
        opts=child,
    )
    when(args.ingress, lambda ingress: _ingress(f"{name}-ingress", args, ingress, child))
    when(args.http_route, lambda route: _http_route(f"{name}-route", args, route, child))
    when(
        args.certificate,
        lambda certificate: k8s.apiextensions.CustomResource(
            f"{name}-certificate",
            api_version="cert-manager.io/v1",
            kind="Certificate",
            metadata=pods.metadata(args.name, args.namespace, args.labels),
            spec={
                "secretName": certificate.secret,
                "dnsNames": certificate.dns_names,
                "issuerRef": {
                    "group": "cert-manager.io",
                    "kind": certificate.issuer_kind,
                    "name": certificate.issuer,
                },
                "privateKey": {"rotationPolicy": "Always"},
            },
            opts=child,
        ),
    )


def _ingress(
    resource_name: str, args: ProxyArgs, ingress: IngressArgs, child: pulumi.ResourceOptions
) -> k8s.networking.v1.Ingress:
    backend = k8s.networking.v1.IngressBackendArgs(
        service=k8s.networking.v1.IngressServiceBackendArgs(
            name=args.name, port=k8s.networking.v1.ServiceBackendPortArgs(name=args.service.port_name)
        )
    )
    return k8s.networking.v1.Ingress(
        resource_name,
        metadata=pods.metadata(args.name, args.namespace, args.labels, ingress.annotations),
        spec=k8s.networking.v1.IngressSpecArgs(
            ingress_class_name=ingress.class_name,
            tls=when(
                ingress.tls,
                lambda tls: [k8s.networking.v1.IngressTLSArgs(hosts=[ingress.host], secret_name=tls.secret)],
            ),
            rules=[
                k8s.networking.v1.IngressRuleArgs(
                    host=ingress.host,
                    http=k8s.networking.v1.HTTPIngressRuleValueArgs(
                        paths=[
                            k8s.networking.v1.HTTPIngressPathArgs(
                                path=ingress.path, path_type="Prefix", backend=backend
                            )
                        ]
                    ),
                )
            ],
        ),
        opts=child,
    )


def _http_route(
    resource_name: str, args: ProxyArgs, route: HttpRouteArgs, child: pulumi.ResourceOptions
) -> k8s.apiextensions.CustomResource:
    return k8s.apiextensions.CustomResource(
        resource_name,
        api_version="gateway.networking.k8s.io/v1",
        kind="HTTPRoute",
        metadata=pods.metadata(args.name, args.namespace, args.labels),
        spec={
            "parentRefs": [route.parent],
            "hostnames": [route.host],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": route.path}}],
                    "backendRefs": [{"name": args.name, "port": args.service.port}],
                }
            ],
        },
        opts=child,
    )
