"""What production lets in and out, where somebody forgot to say who and how."""

import json
from typing import Any

from tests.cases import GONE

from .stacks import PROXY, Broken, Edit, Kept, adding, at, both, setting, thing
from .test_guardrails_exposure import PROXIES, SERVERS, balancer, ingress, policy, route, table

CALLERS, EGRESS = "callers-are-not-the-whole-internet", "pods-do-not-reach-the-whole-internet-on-every-port"
ENCRYPTED, ISSUERS = "calls-from-outside-are-encrypted", "issuers-are-asked-over-https"
HOLE, DOOR, SIDE = "NetworkPolicy/hole", "Service/door", "Ingress/side"
INGRESS = f"Ingress/{PROXY}"
TLS: dict[str, Any] = {"tls": [{"hosts": ["side.example.com"]}]}


def egress(ports: list[int], *ranges: str, **block: Any) -> Edit:
    rule: dict[str, Any] = {"to": [{"ipBlock": {"cidr": cidr, **block}} for cidr in ranges]}
    rule |= {"ports": [{"port": port} for port in ports]} if ports else {}
    spec = {"podSelector": {"matchLabels": SERVERS}, "policyTypes": ["Egress"], "egress": [rule]}
    return adding(thing("NetworkPolicy", "hole", spec=spec))


def callers(*ranges: str) -> Edit:
    return both(
        policy([8080], PROXIES),
        at("NetworkPolicy", "hole", "spec/ingress/0/from", [{"ipBlock": {"cidr": cidr}} for cidr in ranges]),
    )


def issuer(**said: str) -> Edit:
    made = {"issuer": "https://idp.example.com", "audiences": ["inference"], **said}
    return table(json.dumps({"version": 1, "issuers": [made], "rules": []}))


def to_gateway(**parent: Any) -> Edit:
    return route("HTTPRoute", parentRefs=[{"name": "public", **parent}], rules=[{"backendRefs": [{"name": PROXY}]}])


BROKEN: Broken = {
    (CALLERS, HOLE): [
        (callers("10.0.0.0/8", "0.0.0.0/1", "128.0.0.0/1"), "the whole internet (0.0.0.0/0)"),
        (callers("64.0.0.0/3"), "(64.0.0.0/3)"),
        (callers(), "every address call the proxy"),
    ],
    (EGRESS, HOLE): [
        (egress([], "0.0.0.0/0", **{"except": ["10.0.0.0/8"]}), "on every port"),
        (egress([], "0.0.0.0/1", "128.0.0.0/1"), "on every port"),
        (egress([]), "may reach everything on every port"),
    ],
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
    CALLERS: [
        callers("10.0.0.0/8", "203.0.113.0/24"),
        callers("2001:db8::/32"),
        both(callers("0.0.0.0/0"), setting(kind="local", severities=None)),
    ],
    EGRESS: [
        egress([443], "0.0.0.0/0"),
        egress([], "10.0.0.0/8"),
    ],
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
