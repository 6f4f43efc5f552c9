"""The inference proxy: settings, exposure, certificate."""

from typing import assert_never

from components import (
    AccessRuleArgs,
    AuthArgs,
    CertificateArgs,
    ClusterIpArgs,
    ExposureArgs,
    HttpRouteArgs,
    IngressArgs,
    LoadBalancerArgs,
    OidcIssuerArgs,
    ProxyArgs,
    RateLimitArgs,
    ResourcesArgs,
    SecretArgs,
    TimeoutsArgs,
    TlsArgs,
    TracingArgs,
)
from components.place import PROXY

from ..definition import proxy as definition
from ..definition.base import byte_count
from ..definition.images import PROXY_IMAGE
from ..images_lock import ImagesLock
from ..stack import Stack
from . import names
from .containers import container_resources, cpu_scaling, tolerations

CERTIFICATE_SECRET = f"{PROXY}-tls"
REPLICAS = 2


def proxy(stack: Stack, lock: ImagesLock) -> ProxyArgs:
    """Return the arguments of the environment's proxy."""
    settings = stack.platform.proxy
    timeouts = settings.timeouts
    return ProxyArgs(
        image=names.image_reference(stack, lock, PROXY_IMAGE),
        replicas=settings.fixed_replicas or REPLICAS,
        autoscaling=cpu_scaling(settings.autoscaling) if settings.autoscaling else None,
        resources=container_resources(ResourcesArgs, settings.resources),
        exposure=_exposure(settings.exposure),
        tls=_tls(settings.tls),
        auth=_auth(settings.auth),
        access=[_access_rule(rule) for rule in settings.access],
        rate_limit=RateLimitArgs(
            requests_per_minute=settings.rate_limit.requests_per_minute, burst=settings.rate_limit.burst
        ),
        body_limit_bytes=byte_count(settings.body_limit),
        concurrency=settings.concurrency,
        timeouts=TimeoutsArgs(
            connect_seconds=timeouts.connect_seconds,
            request_seconds=timeouts.request_seconds,
            drain_seconds=timeouts.drain_seconds,
        ),
        log_level=settings.log_level,
        tracing=TracingArgs(endpoint=settings.tracing.endpoint, percent=settings.tracing.percent)
        if settings.tracing
        else None,
        node_selector=dict(settings.node_selector),
        tolerations=tolerations(settings.tolerations),
        priority_class=settings.priority_class,
    )


def _exposure(exposure: definition.Exposure) -> ExposureArgs:
    match exposure:
        case definition.ClusterIpExposure():
            return ClusterIpArgs()
        case definition.IngressExposure():
            return IngressArgs(
                host=exposure.host,
                path=exposure.path,
                class_name=exposure.class_name,
                annotations=dict(exposure.annotations),
            )
        case definition.HttpRouteExposure():
            return HttpRouteArgs(
                host=exposure.host,
                path=exposure.path,
                gateway=exposure.gateway,
                gateway_namespace=exposure.gateway_namespace,
                listener=exposure.listener,
            )
        case definition.LoadBalancerExposure():
            return LoadBalancerArgs(annotations=dict(exposure.annotations), source_ranges=list(exposure.source_ranges))
        case _:
            assert_never(exposure)


def _tls(tls: definition.ProxyTls | None) -> TlsArgs | None:
    match tls:
        case definition.SecretTls():
            return TlsArgs(secret=tls.secret)
        case definition.CertManagerTls():
            issuer = CertificateArgs(issuer=tls.issuer, issuer_kind=tls.issuer_kind)
            return TlsArgs(secret=CERTIFICATE_SECRET, certificate=issuer)
        case None:
            return None
        case _:
            assert_never(tls)


def _auth(auth: definition.Auth) -> AuthArgs:
    issuers = [
        OidcIssuerArgs(
            issuer=issuer.issuer,
            audiences=list(issuer.audiences),
            jwks_url=issuer.jwks_url,
            groups_claim=issuer.groups_claim,
        )
        for issuer in auth.oidc
    ]
    return AuthArgs(
        oidc=issuers,
        api_keys=SecretArgs(secret=auth.api_keys.secret) if auth.api_keys else None,
        domino_principal=auth.domino_principal,
    )


def _access_rule(rule: definition.AccessRule) -> AccessRuleArgs:
    return AccessRuleArgs(
        name=rule.name,
        principals=list(rule.principals),
        groups=list(rule.groups),
        source=rule.source,
        actions=list(rule.actions),
        servers=list(rule.servers),
        models=list(rule.models),
    )
