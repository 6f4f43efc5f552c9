"""The inference proxy: settings, exposure, certificate."""

from tidegate_contracts import proxy_process
from tidegate_contracts.proxy_settings import ProxySettings

from components import (
    CertificateArgs,
    HttpRouteArgs,
    IngressArgs,
    ProxyArgs,
    SecretArgs,
    ServiceArgs,
    UpstreamCaArgs,
)

from ..definition.base import byte_count
from ..definition.images import PROXY_IMAGE
from ..definition.proxy import (
    CertManagerTls,
    Exposure,
    HttpRouteExposure,
    IngressExposure,
    LoadBalancerExposure,
    SecretTls,
)
from ..images_lock import ImagesLock
from ..stack import Stack
from . import names
from .containers import PRE_STOP_SECONDS, container_resources, grace_period, tolerations
from .routing import access_table, routing_table
from .triton import cpu_scaling

CERTIFICATE_SECRET = f"{names.PROXY}-tls"


def proxy(stack: Stack, lock: ImagesLock) -> ProxyArgs:
    """Return the arguments of the environment's proxy."""
    settings = stack.platform.proxy
    labels = names.labels(stack, names.PROXY)
    tls = _tls(stack)
    exposure = settings.exposure
    cas = [
        UpstreamCaArgs(
            server=server.name, secret=server.triton.grpc_tls.secret, file=proxy_process.upstream_ca_file(server.name)
        )
        for server in stack.platform.servers
        if server.triton.grpc_tls is not None
    ]
    return ProxyArgs(
        name=names.PROXY,
        headless_name=names.PROXY_HEADLESS,
        namespace=stack.namespace,
        labels=labels,
        selector=names.proxy_selector(stack),
        pod_labels={**labels, **_pod_labels(stack)},
        service_account=names.PROXY,
        image=names.image_reference(stack, lock, PROXY_IMAGE),
        resources=container_resources(settings.resources),
        node_selector=settings.node_selector or None,
        tolerations=tolerations(settings.tolerations),
        priority_class=settings.priority_class,
        replicas=settings.fixed_replicas,
        cpu_scaling=cpu_scaling(settings.autoscaling) if settings.autoscaling else None,
        settings_name=f"{names.PROXY}-settings",
        settings=_environment(stack, tls),
        routing_name=f"{names.PROXY}-routing",
        routing=routing_table(stack).model_dump(mode="json", by_alias=True, exclude_none=True),
        access=access_table(stack).model_dump(mode="json", by_alias=True, exclude_none=True),
        service=_service(exposure, tls),
        ingress=_ingress(exposure, tls) if isinstance(exposure, IngressExposure) else None,
        http_route=_http_route(exposure) if isinstance(exposure, HttpRouteExposure) else None,
        tls=tls,
        certificate=_certificate(stack),
        api_keys=SecretArgs(secret=settings.auth.api_keys.secret) if settings.auth.api_keys else None,
        upstream_cas=cas or None,
        pre_stop=PRE_STOP_SECONDS,
        grace_period=grace_period(settings.timeouts.drain_seconds),
    )


def _pod_labels(stack: Stack) -> dict[str, str]:
    labels = {names.ROLE: "proxy"}
    domino = stack.platform.domino
    if domino is None:
        return labels
    labels |= {"nucleus-client": "true"}
    if stack.platform.proxy.auth.oidc:
        labels |= {"keycloak-client": "true"}
    if domino.mesh is not None:
        labels |= {"sidecar.istio.io/inject": "true", "security.istio.io/tlsMode": "istio"}
    return labels


def _environment(stack: Stack, tls: SecretArgs | None) -> dict[str, str]:
    """Return the settings that are no files."""
    settings = stack.platform.proxy
    domino = stack.platform.domino
    principal_url = None
    if settings.auth.domino_principal and domino is not None:
        principal_url = f"http://nucleus-frontend.{domino.platform_namespace}:80/v4/auth/principal"
    return ProxySettings(
        environment=stack.environment.name,
        replicas_host=f"{names.PROXY_HEADLESS}.{stack.namespace}.svc",
        body_limit_bytes=byte_count(settings.body_limit),
        concurrency=settings.concurrency,
        connect_timeout_seconds=settings.timeouts.connect_seconds,
        request_timeout_seconds=settings.timeouts.request_seconds,
        drain_seconds=settings.timeouts.drain_seconds,
        log_level=settings.log_level,
        tls=tls is not None,
        api_keys=settings.auth.api_keys is not None,
        domino_principal_url=principal_url,
    ).environment_variables()


def _tls(stack: Stack) -> SecretArgs | None:
    match stack.platform.proxy.tls:
        case SecretTls(secret=secret):
            return SecretArgs(secret=secret)
        case CertManagerTls():
            return SecretArgs(secret=CERTIFICATE_SECRET)
        case None:
            return None


def _certificate(stack: Stack) -> CertificateArgs | None:
    tls = stack.platform.proxy.tls
    if not isinstance(tls, CertManagerTls):
        return None
    service = f"{names.PROXY}.{stack.namespace}"
    exposure = stack.platform.proxy.exposure
    hosts = [exposure.host] if isinstance(exposure, IngressExposure | HttpRouteExposure) else []
    return CertificateArgs(
        secret=CERTIFICATE_SECRET,
        dns_names=[names.PROXY, service, f"{service}.svc", f"{service}.svc.cluster.local", *hosts],
        issuer=tls.issuer,
        issuer_kind=tls.issuer_kind,
    )


def _service(exposure: Exposure, tls: SecretArgs | None) -> ServiceArgs:
    balanced = isinstance(exposure, LoadBalancerExposure)
    return ServiceArgs(
        type="LoadBalancer" if balanced else "ClusterIP",
        annotations=(exposure.annotations or None) if isinstance(exposure, LoadBalancerExposure) else None,
        source_ranges=list(exposure.source_ranges) or None if isinstance(exposure, LoadBalancerExposure) else None,
        # Keeps the callers' addresses, which the network policy looks at.
        external_traffic_policy="Local" if balanced else None,
        port_name="https" if tls else "http",
        port=proxy_process.HTTPS_SERVICE_PORT if tls else proxy_process.HTTP_SERVICE_PORT,
    )


def _ingress(exposure: IngressExposure, tls: SecretArgs | None) -> IngressArgs:
    return IngressArgs(
        host=exposure.host,
        path=exposure.path,
        class_name=exposure.class_name,
        annotations=exposure.annotations or None,
        tls=tls,
    )


def _http_route(exposure: HttpRouteExposure) -> HttpRouteArgs:
    parent = {"name": exposure.gateway, "namespace": exposure.gateway_namespace}
    if exposure.listener is not None:
        parent["sectionName"] = exposure.listener
    return HttpRouteArgs(host=exposure.host, path=exposure.path, parent=parent)
