"""The exposure of the proxy: its Services, an Ingress or a Gateway route, and its certificate."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import proxy_process

from stacks.definition.proxy import (
    PROXY,
    ClusterIpExposure,
    Exposure,
    HttpRouteExposure,
    IngressExposure,
    LoadBalancerExposure,
)

from . import pods
from .args import ProxyArgs, TlsArgs
from .naming import PROXY_HEADLESS, Naming
from .network_boundary import address_peer, namespace_peer
from .pods import HTTPS
from .values import each, either, equals, if_true, joined, merged, none_if_empty, nothing, of_kind, of_kinds, when

ALL_ADDRESSES = ("0.0.0.0/0", "::/0")


def expose(name: str, args: ProxyArgs, naming: Naming, child: pulumi.ResourceOptions) -> None:
    """Declare the Services, and the Ingress or route in front of them."""
    exposure = args.exposure
    annotations = of_kinds(
        exposure,
        {
            LoadBalancerExposure: lambda balancer: none_if_empty(balancer.annotations),
            IngressExposure: lambda ingress: none_if_empty(ingress.service_annotations),
            HttpRouteExposure: nothing,
            ClusterIpExposure: nothing,
        },
    )
    ports = [
        either(
            args.tls,
            lambda _: pods.service_port("https", proxy_process.HTTPS_SERVICE_PORT, "http"),
            lambda: pods.service_port("http", proxy_process.HTTP_SERVICE_PORT, "http"),
        ),
        pods.service_port("grpc", proxy_process.GRPC_SERVICE_PORT, "grpc", when(args.tls, lambda _: HTTPS)),
    ]
    pods.service(
        f"{name}-service",
        naming.metadata(PROXY, naming.labels(PROXY), annotations),
        naming.proxy_selector,
        ports,
        child,
        type=if_true(equals(exposure.kind, "load-balancer"), lambda: "LoadBalancer", lambda: "ClusterIP"),
        load_balancer_source_ranges=of_kind(
            exposure, LoadBalancerExposure, lambda balancer: none_if_empty(balancer.source_ranges)
        ),
        # Preserves the callers' addresses, which the network policy checks.
        external_traffic_policy=of_kind(exposure, LoadBalancerExposure, lambda _: "Local"),
    )
    # A replica counts the addresses of this Service to know its share of a rate limit.
    metadata = naming.metadata(PROXY_HEADLESS, naming.labels(PROXY))
    ports = [pods.service_port("http", proxy_process.HTTP_PORT, "http")]
    pods.service(f"{name}-headless", metadata, naming.proxy_selector, ports, child, cluster_ip="None")
    of_kind(exposure, IngressExposure, lambda ingress: _ingress(f"{name}-ingress", args, ingress, naming, child))
    of_kind(exposure, HttpRouteExposure, lambda route: _http_route(f"{name}-route", args, route, naming, child))


def exposed_to(exposure: Exposure) -> list[Any]:
    """Return the callers that an exposure implies. An Ingress has none, because it does not name its controller."""
    return joined(
        of_kind(exposure, HttpRouteExposure, lambda route: [namespace_peer(route.gateway_namespace)]),
        of_kind(
            exposure,
            LoadBalancerExposure,
            lambda balancer: either(
                none_if_empty(balancer.source_ranges),
                lambda ranges: each(ranges, address_peer),
                lambda: each(ALL_ADDRESSES, address_peer),
            ),
        ),
    )


def certificate(
    resource_name: str, tls: TlsArgs, exposure: Exposure, naming: Naming, child: pulumi.ResourceOptions
) -> k8s.apiextensions.CustomResource | None:
    """Declare the certificate of cert-manager, if the definition names an issuer."""
    service = f"{PROXY}.{naming.namespace}"
    names = joined(
        [PROXY, service, f"{service}.svc", f"{service}.svc.cluster.local"],
        of_kind(exposure, IngressExposure, lambda ingress: [ingress.host]),
        of_kind(exposure, HttpRouteExposure, lambda route: [route.host]),
    )
    return when(
        tls.certificate,
        lambda wanted: k8s.apiextensions.CustomResource(
            resource_name,
            api_version="cert-manager.io/v1",
            kind="Certificate",
            metadata=naming.metadata(PROXY, naming.labels(PROXY)),
            spec={
                "secretName": tls.secret,
                "dnsNames": names,
                "issuerRef": {"group": "cert-manager.io", "kind": wanted.issuer_kind, "name": wanted.issuer},
                "privateKey": {"rotationPolicy": "Always"},
            },
            opts=child,
        ),
    )


def _ingress(
    resource_name: str, args: ProxyArgs, ingress: IngressExposure, naming: Naming, child: pulumi.ResourceOptions
) -> k8s.networking.v1.Ingress:
    port = k8s.networking.v1.ServiceBackendPortArgs(name=either(args.tls, lambda _: "https", lambda: "http"))
    backend = k8s.networking.v1.IngressBackendArgs(
        service=k8s.networking.v1.IngressServiceBackendArgs(name=PROXY, port=port)
    )
    path = k8s.networking.v1.HTTPIngressPathArgs(path=ingress.path, path_type="Prefix", backend=backend)
    return k8s.networking.v1.Ingress(
        resource_name,
        metadata=naming.metadata(PROXY, naming.labels(PROXY), ingress.annotations),
        spec=k8s.networking.v1.IngressSpecArgs(
            ingress_class_name=ingress.class_name,
            tls=when(
                args.tls, lambda tls: [k8s.networking.v1.IngressTLSArgs(hosts=[ingress.host], secret_name=tls.secret)]
            ),
            rules=[
                k8s.networking.v1.IngressRuleArgs(
                    host=ingress.host, http=k8s.networking.v1.HTTPIngressRuleValueArgs(paths=[path])
                )
            ],
        ),
        opts=child,
    )


def _http_route(
    resource_name: str, args: ProxyArgs, route: HttpRouteExposure, naming: Naming, child: pulumi.ResourceOptions
) -> k8s.apiextensions.CustomResource:
    parent = merged(
        {"name": route.gateway, "namespace": route.gateway_namespace},
        when(route.listener, lambda listener: {"sectionName": listener}),
    )
    port = either(args.tls, lambda _: proxy_process.HTTPS_SERVICE_PORT, lambda: proxy_process.HTTP_SERVICE_PORT)
    return k8s.apiextensions.CustomResource(
        resource_name,
        api_version="gateway.networking.k8s.io/v1",
        kind="HTTPRoute",
        metadata=naming.metadata(PROXY, naming.labels(PROXY)),
        spec={
            "parentRefs": [parent],
            "hostnames": [route.host],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": route.path}}],
                    "backendRefs": [{"name": PROXY, "port": port}],
                }
            ],
        },
        opts=child,
    )
