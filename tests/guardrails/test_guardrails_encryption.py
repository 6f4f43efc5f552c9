"""Calls from outside, and what issuers are asked, are encrypted."""

import json
from typing import Any

from tests.cases import GONE

from .stacks import PROXY, Broken, Edit, Kept, at, both, setting
from .test_guardrails_exposure import PROXIES, balancer, ingress, route, table

ENCRYPTED, ISSUERS = "calls-from-outside-are-encrypted", "issuers-are-asked-over-https"
DOOR, SIDE = "Service/door", "Ingress/side"
INGRESS = f"Ingress/{PROXY}"
TLS: dict[str, Any] = {"tls": [{"hosts": ["side.example.com"]}]}


def issuer(**said: str) -> Edit:
    made = {"issuer": "https://idp.example.com", "audiences": ["inference"], **said}
    return table(json.dumps({"version": 1, "issuers": [made], "rules": []}))


def to_gateway(**parent: Any) -> Edit:
    return route("HTTPRoute", parentRefs=[{"name": "public", **parent}], rules=[{"backendRefs": [{"name": PROXY}]}])


BROKEN: Broken = {
    (ENCRYPTED, DOOR): [
        (balancer(PROXIES), "of type LoadBalancer, and none of its ports (80) is https"),
    ],
    (ENCRYPTED, INGRESS): [
        (at("Ingress", PROXY, "spec/tls", GONE), "it has no TLS for inference.example.com"),
    ],
    (ENCRYPTED, SIDE): [(ingress(PROXY), "no TLS for side.example.com"), (ingress(PROXY, host="", **TLS), "any host")],
    (ENCRYPTED, "HTTPRoute/side"): [(to_gateway(), "it names no listener of Gateway public")],
    (ISSUERS, "ConfigMap/inference-proxy-routing"): [
        (issuer(issuer="http://keycloak.identity.svc/realms/x"), "issuer http://keycloak"),
        (issuer(jwksUrl="http://idp.example.com/keys.svc"), "jwksUrl"),
    ],
}
KEPT: Kept = {
    ENCRYPTED: [
        balancer(PROXIES, ports=[{"name": "https", "port": 443}, {"name": "grpc", "port": 8001}]),
        both(
            balancer(PROXIES),
            at(
                "Service",
                "door",
                "metadata/annotations",
                {"service.beta.kubernetes.io/aws-load-balancer-ssl-cert": "a"},
            ),
        ),
        ingress(PROXY, **TLS),
        to_gateway(sectionName="https"),
        both(at("Ingress", PROXY, "spec/tls", GONE), setting(kind="local", severities=None)),
    ],
    ISSUERS: [
        issuer(),
        issuer(jwksUrl="http://keycloak.identity.svc:8080/certs"),
    ],
}
