"""Resolves a stack, one environment on one data plane, into the components' arguments.

It fills in defaults, digests and mirrors of images. Other parts keep the definition's types. The components compose
names, labels, selectors and files.

The functions are pure: they read and write nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel

from components.args import (
    EnvironmentArgs,
    NamespaceArgs,
    NetworkBoundaryArgs,
    ProxyArgs,
    TlsArgs,
)
from policies import guardrails
from policies.guardrails.settings import Kind

from ..definition.base import copy_as
from ..definition.environment import Reach, lies_within
from ..definition.images import POLICY_IMAGE, PROXY_IMAGE
from ..definition.proxy import PROXY, REPLICAS, CertificateIssuer, ProxyTls, SecretTls
from ..images_lock import ImagesLock
from ..stack import Stack
from . import settings
from .datasets import claims, dataset_volumes
from .servers import image_reference, names, server_args

CERTIFICATE_SECRET: Final = f"{PROXY}-tls"
Part = TypeVar("Part")
_KEYS = ("name", "issuer", "version")


def resolve(stack: Stack, lock: ImagesLock) -> EnvironmentArgs:
    """Return the arguments of the stack's Environment component."""
    stack = replace(stack, platform=in_order(stack.platform))
    platform = stack.platform
    images = {image.name for image in platform.images}
    return EnvironmentArgs.model_construct(
        **names(stack.environment),
        namespace=_namespace(stack),
        pull_secrets=platform.pull_secrets,
        pods=platform.pods,
        datasets=dataset_volumes(stack),
        claims=claims(stack),
        eviction_policy_image=image_reference(stack, lock, POLICY_IMAGE) if POLICY_IMAGE in images else None,
        servers=tuple(server_args(stack, lock, server) for server in platform.servers),
        proxy=_proxy(stack, lock),
        network=_network(stack),
        domino=platform.domino,
        mesh=platform.mesh,
        monitoring=platform.monitoring if platform.monitoring.operator else None,
    )


def in_order(part: Part) -> Part:
    """Return a part with items sorted by name (issuers by URL, versions by number) and keys sorted.

    So moving lines in a definition changes nothing. Lists of texts, such as mount options or arguments, keep their
    order, because it can have a meaning.
    """
    ordered: Any = part
    if isinstance(part, BaseModel):
        ordered = part.model_copy(update={name: in_order(getattr(part, name)) for name in type(part).model_fields})
    elif isinstance(part, Mapping):
        ordered = {key: in_order(part[key]) for key in sorted(part)}
    elif isinstance(part, tuple):
        items = [in_order(item) for item in part]
        key = next((key for key in _KEYS if items and all(hasattr(item, key) for item in items)), None)
        ordered = tuple(sorted(items, key=lambda item: getattr(item, key)) if key else items)
    return cast(Part, ordered)


def _namespace(stack: Stack) -> NamespaceArgs:
    guardrail_text = guardrails.annotation(guardrail_settings(stack))
    return NamespaceArgs.model_construct(
        name=stack.namespace,
        labels=stack.environment.labels,
        annotations={
            **stack.environment.annotations,
            guardrails.ANNOTATION: guardrail_text,
            settings.ANNOTATION: settings.annotation(stack),
        },
    )


def guardrail_settings(stack: Stack) -> guardrails.Settings:
    """Return the settings of an environment's guardrails, which are an annotation of the Namespace."""
    limits = stack.platform.guardrails
    kind: Kind = "production" if stack.environment.production else "local" if stack.environment.local else "shared"
    waivers = tuple(
        guardrails.Waiver(**{**dict(waiver), "until": date.fromisoformat(waiver.until)})
        for waiver in sorted(limits.waivers, key=lambda waiver: waiver.name)
    )
    return guardrails.Settings(**{**dict(limits), "kind": kind, "waivers": waivers})


def _proxy(stack: Stack, lock: ImagesLock) -> ProxyArgs:
    proxy = stack.platform.proxy
    return copy_as(
        ProxyArgs,
        proxy,
        image=image_reference(stack, lock, PROXY_IMAGE),
        replicas=proxy.replicas or REPLICAS,
        tls=_tls(proxy.tls) if proxy.tls else None,
    )


def _tls(tls: ProxyTls) -> TlsArgs:
    if isinstance(tls, SecretTls):
        return TlsArgs(secret=tls.secret)
    return TlsArgs(secret=CERTIFICATE_SECRET, certificate=copy_as(CertificateIssuer, tls))


def _network(stack: Stack) -> NetworkBoundaryArgs:
    network = stack.platform.network
    servers = {server.name: server.made_as for server in stack.platform.servers}
    reach = tuple(
        each.model_copy(
            update={
                "by": tuple(sorted({*each.by})),
                "server": servers.get(each.server or "", each.server),
                "except_": _excluded(each),
            }
        )
        for each in sorted(network.reach, key=lambda each: each.name)
    )
    prometheus = stack.platform.monitoring.prometheus
    return copy_as(NetworkBoundaryArgs, network, reach=reach, prometheus=prometheus)


_NEVER_BY_RANGE = (
    *("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"),
    *("169.254.169.254/32", "fd00:ec2::254/128"),
)
"""Private and link-local ranges, which contain clusters, and metadata addresses, which hand out credentials."""


def _excluded(reach: Reach) -> tuple[str, ...]:
    """Return the excluded parts of a range: its exceptions, and ranges that need a separate entry."""
    if reach.cidr is None:
        return ()
    inside = {*reach.except_, *(cidr for cidr in _NEVER_BY_RANGE if lies_within(cidr, reach.cidr))}
    return tuple(sorted(one for one in inside if not any(lies_within(one, other) for other in inside)))
