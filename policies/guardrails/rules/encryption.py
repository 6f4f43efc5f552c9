"""Encryption: requests from outside, and requests to issuers, use TLS."""

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate_contracts.proxy_settings import variable

from ..objects import Environment, at, items, mapping, mappings, name_of, text, texts
from ..rule import Breach, guardrail
from .access import access_tables

_CERTIFICATES = (
    "alb.ingress.kubernetes.io/certificate-arn",
    "ingress.gcp.kubernetes.io/pre-shared-cert",
    "networking.gke.io/managed-certificates",
    "networking.gke.io/certmap",
    "route.openshift.io/termination",
    "service.beta.kubernetes.io/aws-load-balancer-ssl-cert",
)
"""Annotations that give a cloud load balancer or OpenShift's router a certificate."""
_REDIRECT = "nginx.ingress.kubernetes.io/ssl-redirect"
_IN_CLUSTER = (".svc", ".svc.cluster.local")


@guardrail(
    "Every request from outside the cluster is encrypted",
    "Set proxy.tls, or the certificate annotation of your load balancer or Ingress controller. For a Gateway, name "
    "an HTTPS listener.",
    shared="advisory",
)
def calls_from_outside_are_encrypted(environment: Environment) -> Iterator[Breach]:
    """Others on the network could read tokens, API keys and payloads.

    A route without a listener is attached to every listener of its Gateway, including plain HTTP. The check does not
    see whether a named listener has TLS.
    """
    services = environment.of_kind("Service")
    doors = {name_of(each): each for each in services if any(pod.is_proxy for pod in environment.behind(each))}
    for service in doors.values():
        kind, ports = at(service, "spec", "type"), mappings(at(service, "spec", "ports"))
        is_encrypted = any(port.get("name") == "https" for port in ports) or _has_certificate(service)
        if kind in ("LoadBalancer", "NodePort") and not is_encrypted:
            numbers = ", ".join(str(port.get("port")) for port in ports)
            yield Breach(service, f"it is of type {kind}, but none of its ports ({numbers}) is https")
    for item in environment.of_kind("Ingress", "HTTPRoute"):
        if doors.keys() & {value for _, value in texts(item.get("spec"))}:
            yield from (Breach(item, what) for what in _plain(item))
    for item in environment.of_kind("Gateway"):
        for listener in mappings(at(item, "spec", "listeners")):
            if listener.get("protocol") in ("HTTP", "TCP"):
                yield Breach(item, f"its listener {listener.get('name')} has no TLS")
    for item in environment.of_kind("Route"):
        if not at(item, "spec", "tls") or at(item, "spec", "tls", "insecureEdgeTerminationPolicy") == "Allow":
            yield Breach(item, "it admits requests without TLS")


@guardrail(
    "The proxy reaches issuers, their keys and Domino's principal service over HTTPS",
    "Use https:// URLs in proxy.auth.oidc and domino.principalUrl. For jwksUrl and principalUrl, http:// is allowed "
    "to a Service of the cluster.",
    shared="advisory",
)
def issuers_are_asked_over_https(environment: Environment) -> Iterator[Breach]:
    """Without HTTPS, another host can return its own keys, and then sign tokens for any caller."""
    for item in environment.of_kind("ConfigMap"):
        url = text(mapping(item.get("data")).get(variable("domino_principal_url")))
        if url and not url.startswith("https://") and not _host(url).endswith(_IN_CLUSTER):
            yield Breach(item, f"the proxy would query the principal service {url} without encryption")
    for item, table in access_tables(environment):
        for issuer in mappings(table.get("issuers")):
            for key in ("issuer", "jwksUrl"):
                url = text(issuer.get(key))
                inside = key == "jwksUrl" and _host(url).endswith(_IN_CLUSTER)
                if url and not url.startswith("https://") and not inside:
                    yield Breach(item, f"{key} {url} is not encrypted")


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].partition(":")[0]


def _has_certificate(item: Mapping[str, Any]) -> bool:
    annotations = mapping(at(item, "metadata", "annotations"))
    return any(text(annotations.get(key)) for key in _CERTIFICATES)


def _plain(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield each setting with which an Ingress or a route admits plain HTTP."""
    for parent in mappings(at(item, "spec", "parentRefs")):
        if not parent.get("sectionName") and not parent.get("port"):
            yield f"it does not name a listener of Gateway {parent.get('name')}"
    if item.get("kind") == "HTTPRoute":
        return
    if text(at(item, "metadata", "annotations", _REDIRECT)) == "false":
        yield f"{_REDIRECT}: false admits requests over plain HTTP"
    if not _has_certificate(item):
        covered = {text(host) for tls in mappings(at(item, "spec", "tls")) for host in items(tls.get("hosts"))}
        rest: list[Mapping[str, Any]] = [{}] if at(item, "spec", "defaultBackend") else []
        for rule in [*mappings(at(item, "spec", "rules")), *rest] or [{}]:
            host = text(rule.get("host"))
            if not {host, f"*.{host.partition('.')[2]}"} & covered:
                yield f"it has no TLS for {host or 'any host'}"
