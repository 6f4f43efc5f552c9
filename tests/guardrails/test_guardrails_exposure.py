"""Nobody in production is everybody; images are pinned; the proxy is the one entry point."""

import json
from typing import Any

from .stacks import (
    MAIN,
    PROXY,
    SMALL,
    Broken,
    Edit,
    Kept,
    Objects,
    adding,
    at,
    both,
    findings,
    in_small,
    prod,
    setting,
    thing,
)

EVERYBODY = "access-rules-name-their-callers"
ALL = "access-rules-name-servers-or-models"
ROUTING = "ConfigMap/inference-proxy-routing"


def table(text: str) -> Edit:
    return at("ConfigMap", "inference-proxy-routing", "data/access.json", text)


def rule(**changes: Any) -> Edit:
    made = {"name": "r", "principals": [], "groups": ["team"], "actions": ["infer"], "servers": ["a"], "models": ["*"]}
    return table(json.dumps({"version": 1, "rules": [{**made, **changes}]}))


ACCESS_BROKEN: Broken = {
    (EVERYBODY, ROUTING): [
        (rule(groups=["*"]), 'access rule "r" is for all groups'),
        (rule(principals=["*@*"], groups=[]), "for all principals"),
        (rule(groups=["[a-z]*"]), "for all groups"),
        (rule(groups=["[!]x]*-*"]), "for all groups"),
    ],
    (ALL, ROUTING): [
        (rule(servers=["*"]), "every model of every server"),
        (rule(servers=["[a-z0-9]*"], models=["*-*"]), "every model of every server"),
    ],
}
ACCESS_KEPT: Kept = {
    EVERYBODY: [
        rule(groups=["team-*"]),
        rule(principals=["service-account-*"]),
        rule(principals=["*@example.com", "[ab]lice"]),
        both(rule(groups=["*"]), setting(kind="shared")),
        table("no JSON: the proxy refuses it and keeps the last good one"),
    ],
    ALL: [
        rule(models=["*"], servers=["on*"]),
        rule(models=["fraud"], servers=["*"]),
        both(rule(servers=["*"]), setting(kind="shared")),
    ],
}


PINNED, ENTRY = "images-are-pinned-by-digest", "nothing-bypasses-the-proxy"
SERVERS = {"app.kubernetes.io/instance": "prod", "tidegate.dev/role": "server"}
PROXIES = {"app.kubernetes.io/instance": "prod", "tidegate.dev/role": "proxy"}
HOLE = "NetworkPolicy/hole"
TEAM = {"matchLabels": {"team": "a"}}
RANGES = "spec/loadBalancerSourceRanges"


def service(labels: dict[str, str], **spec: Any) -> Edit:
    return adding(thing("Service", "door", spec={"selector": labels, "ports": [{"port": 80}], **spec}))


def balancer(labels: dict[str, str], **spec: Any) -> Edit:
    return service(labels, type="LoadBalancer", loadBalancerSourceRanges=["192.0.2.0/24"], **spec)


def route(kind: str, **spec: Any) -> Edit:
    return adding(thing(kind, "side", spec=spec))


def ingress(service_name: str, host: str = "side.example.com", **spec: Any) -> Edit:
    backend = {"backend": {"service": {"name": service_name, "port": {"number": 8000}}}}
    return route("Ingress", rules=[{"host": host, "http": {"paths": [backend]}}], **spec)


def policy(ports: list[int] | None, labels: dict[str, str] = SERVERS, end_port: int | None = None, **peer: Any) -> Edit:
    to_its_end = {} if end_port is None else {"endPort": end_port}
    rule = {"from": [peer], **({} if ports is None else {"ports": [{"port": port, **to_its_end} for port in ports]})}
    spec = {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": [rule]}
    return adding(thing("NetworkPolicy", "hole", spec=spec))


in_role_of_proxy = at("StatefulSet", MAIN, "spec/template/metadata/labels/tidegate.dev~role", "proxy")


def without_policy_types(objects: Objects) -> None:
    for item in objects:
        if item["kind"] == "NetworkPolicy" and item["metadata"]["name"] != "default-deny":
            del item["spec"]["policyTypes"]


BROKEN: Broken = {
    **ACCESS_BROKEN,
    (PINNED, f"StatefulSet/{SMALL}"): [
        (in_small("containers/0/image", "nvcr.io/tritonserver:26.08"), "26.08 has no"),
    ],
    (ENTRY, "Service/door"): [
        (service({"tidegate.dev/pool": "small"}, type="LoadBalancer"), "LoadBalancer"),
        # Selected by what proxies and servers have in common: the port of the node leads to both.
        (
            service({"app.kubernetes.io/instance": "prod"}, type="NodePort", ports=[{"name": "https", "port": 443}]),
            "NodePort",
        ),
    ],
    # A server that carries the proxy's role is a server still.
    (ENTRY, f"Service/{MAIN}"): [
        (both(in_role_of_proxy, at("Service", MAIN, "spec/type", "NodePort")), "of type NodePort"),
    ],
    (ENTRY, "Ingress/side"): [
        (ingress(SMALL), f"leads to Service {SMALL}"),
        (both(service({"tidegate.dev/pool": "small"}), ingress("door")), "Service door"),
    ],
    (ENTRY, "HTTPRoute/side"): [
        (route("HTTPRoute", rules=[{"backendRefs": [{"name": SMALL}]}]), SMALL),
        (route("HTTPRoute", rules=[{"filters": [{"requestMirror": {"backendRef": {"name": SMALL}}}]}]), SMALL),
    ],
    (ENTRY, "VirtualService/side"): [
        (route("VirtualService", http=[{"route": [{"destination": {"host": f"{SMALL}.inference-prod.svc"}}]}]), SMALL),
    ],
    (ENTRY, HOLE): [
        (policy([8000], podSelector={"matchLabels": {"app": "somebody-else"}}), "others than the proxy"),
        (policy(None, namespaceSelector=TEAM, podSelector={}), "others than the proxy"),
        (policy([8002], end_port=8100, namespaceSelector=TEAM), "others than the proxy"),
    ],
}
KEPT: Kept = {
    **ACCESS_KEPT,
    PINNED: [
        in_small("containers/0/image", f"localhost:5000/a/b@sha256:{'0f' * 32}"),
        both(setting(kind="local", severities=None), in_small("containers/0/image", "triton:test")),
    ],
    ENTRY: [
        both(at("Service", PROXY, "spec/type", "LoadBalancer"), at("Service", PROXY, RANGES, ["192.0.2.0/24"])),
        balancer(PROXIES, ports=[{"name": "https", "port": 443}]),
        balancer({"app": "somebody-else"}),
        service({"tidegate.dev/pool": "small"}, type="ClusterIP"),
        ingress(PROXY, tls=[{"hosts": ["side.example.com"]}]),
        ingress(PROXY, host=f"{SMALL}.example.com", tls=[{"hosts": ["*.example.com"]}]),
        route(
            "HTTPRoute",
            parentRefs=[{"name": "public", "sectionName": "https"}],
            hostnames=[f"{SMALL}.example.com"],
            rules=[{"backendRefs": [{"name": PROXY}]}],
        ),
        policy([8002, 8091], namespaceSelector=TEAM),
        policy([8000], podSelector={"matchLabels": PROXIES}),
        policy([8080], PROXIES, namespaceSelector=TEAM),
        without_policy_types,  # Kubernetes' default: a policy without types is one of ingress
    ],
}


def test_without_a_policy_that_closes_them_servers_are_open_to_everybody() -> None:
    objects = [item for item in prod() if item["kind"] != "NetworkPolicy"]
    found = findings(objects)
    assert {each.rule for each in found} == {ENTRY, "everything-is-refused-by-default"}
    open_ones = [each for each in found if each.rule == ENTRY]
    assert len(open_ones) == sum(item["kind"] == "StatefulSet" for item in objects)
    assert all("no NetworkPolicy closes" in each.what for each in open_ones)
