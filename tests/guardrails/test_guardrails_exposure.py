"""Images are pinned; the proxy is the one door."""

from typing import Any

from .stacks import (
    GONE,
    MAIN,
    PROXY,
    SMALL,
    Case,
    Edit,
    Objects,
    adding,
    at,
    both,
    findings,
    in_small,
    prod,
    settings,
    thing,
)

PINNED, DOOR = "images-are-pinned-by-digest", "nothing-bypasses-the-proxy"
SERVERS = {"app.kubernetes.io/instance": "prod", "tidegate.dev/role": "server"}
PROXIES = {"app.kubernetes.io/instance": "prod", "tidegate.dev/role": "proxy"}
SERVICE = f"Service/{SMALL}"
HOLE = "NetworkPolicy/hole"


def service(labels: dict[str, str], **spec: Any) -> Edit:
    return adding(thing("Service", "door", spec={"selector": labels, "ports": [{"port": 80}], **spec}))


def route(kind: str, **spec: Any) -> Edit:
    return adding(thing(kind, "side", spec=spec))


def ingress(service_name: str, host: str = "side.example.com") -> Edit:
    backend = {"backend": {"service": {"name": service_name, "port": {"number": 8000}}}}
    return route("Ingress", rules=[{"host": host, "http": {"paths": [backend]}}])


def policy(ports: list[int] | None, labels: dict[str, str] = SERVERS, **peer: Any) -> Edit:
    rule = {"from": [peer], **({} if ports is None else {"ports": [{"port": port} for port in ports]})}
    spec = {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": [rule]}
    return adding(thing("NetworkPolicy", "hole", spec=spec))


def without_policy_types(objects: Objects) -> None:
    for item in objects:
        if item["kind"] == "NetworkPolicy":
            del item["spec"]["policyTypes"]


BROKEN = (
    Case(PINNED, in_small("containers/0/image", "nvcr.io/tritonserver:26.08"), f"StatefulSet/{SMALL}", "26.08 has no"),
    Case(PINNED, in_small("initContainers/0/image", "policy@sha256:12"), f"StatefulSet/{SMALL}", "policy@sha256:12"),
    Case(
        PINNED, at("Deployment", PROXY, "spec/template/spec/containers/0/image", GONE), f"Deployment/{PROXY}", "(none)"
    ),
    Case(DOOR, at("Service", SMALL, "spec/type", "LoadBalancer"), SERVICE, "of type LoadBalancer"),
    Case(DOOR, at("Service", SMALL, "spec/type", "NodePort"), SERVICE, "of type NodePort"),
    Case(DOOR, at("Service", SMALL, "spec/externalIPs", ["203.0.113.9"]), SERVICE, "externalIPs"),
    Case(DOOR, service({"tidegate.dev/pool": "small"}, type="LoadBalancer"), "Service/door", "LoadBalancer"),
    # Selected by what proxies and servers have in common: the port of the node leads to both.
    Case(DOOR, service({"app.kubernetes.io/instance": "prod"}, type="NodePort"), "Service/door", "NodePort"),
    # A server that carries the proxy's role is a server still.
    Case(
        DOOR,
        both(
            at("StatefulSet", MAIN, "spec/template/metadata/labels/tidegate.dev~role", "proxy"),
            at("Service", MAIN, "spec/type", "NodePort"),
        ),
        f"Service/{MAIN}",
        "of type NodePort",
    ),
    Case(DOOR, ingress(SMALL), "Ingress/side", f"leads to Service {SMALL}"),
    Case(DOOR, route("Ingress", defaultBackend={"service": {"name": MAIN}}), "Ingress/side", MAIN),
    Case(DOOR, both(service({"tidegate.dev/pool": "small"}), ingress("door")), "Ingress/side", "Service door"),
    Case(DOOR, route("HTTPRoute", rules=[{"backendRefs": [{"name": SMALL}]}]), "HTTPRoute/side", SMALL),
    Case(
        DOOR,
        route("HTTPRoute", rules=[{"filters": [{"requestMirror": {"backendRef": {"name": SMALL}}}]}]),
        "HTTPRoute/side",
        SMALL,
    ),
    Case(DOOR, route("GRPCRoute", rules=[{"backendRefs": [{"name": SMALL}]}]), "GRPCRoute/side", SMALL),
    Case(DOOR, route("Route", to={"kind": "Service", "name": SMALL}), "Route/side", SMALL),
    Case(
        DOOR,
        route("VirtualService", http=[{"route": [{"destination": {"host": f"{SMALL}.inference-prod.svc"}}]}]),
        "VirtualService/side",
        SMALL,
    ),
    Case(DOOR, policy([8000], namespaceSelector={}), HOLE, "others than the proxy"),
    Case(DOOR, policy(None, namespaceSelector={}, podSelector={}), HOLE, "others than the proxy"),
    Case(DOOR, policy([8090], ipBlock={"cidr": "10.0.0.0/8"}), HOLE, "others than the proxy"),
    Case(DOOR, policy([8001], podSelector={}), HOLE, "others than the proxy"),
    Case(DOOR, policy([8002, 8000], {}, namespaceSelector={}), HOLE, "others than the proxy"),
    Case(
        DOOR,
        both(
            policy([8002], namespaceSelector={}),
            at("NetworkPolicy", "hole", "spec/ingress/0/ports/0/endPort", 8100),
        ),
        HOLE,
        "others than the proxy",
    ),
)
KEPT = (
    Case(PINNED, in_small("containers/0/image", f"localhost:5000/a/b@sha256:{'0f' * 32}")),
    Case(
        PINNED,
        both(lambda o: settings(o, kind="local", severities=None), in_small("containers/0/image", "triton:test")),
    ),
    Case(DOOR, at("Service", PROXY, "spec/type", "LoadBalancer")),
    Case(DOOR, service(PROXIES, type="NodePort")),
    Case(DOOR, service({"app": "somebody-else"}, type="LoadBalancer")),
    Case(DOOR, service({"tidegate.dev/pool": "small"}, type="ClusterIP")),
    Case(DOOR, ingress(PROXY)),
    Case(DOOR, ingress(PROXY, host=f"{SMALL}.example.com")),
    Case(DOOR, route("HTTPRoute", hostnames=[f"{SMALL}.example.com"], rules=[{"backendRefs": [{"name": PROXY}]}])),
    Case(DOOR, policy([8002, 8091], namespaceSelector={})),
    Case(DOOR, policy([8000], podSelector={"matchLabels": PROXIES})),
    Case(DOOR, policy([8080], PROXIES, namespaceSelector={})),
    # Kubernetes' default: a policy without types is one of ingress.
    Case(DOOR, without_policy_types),
)


def test_without_a_policy_that_closes_them_servers_are_open_to_everybody() -> None:
    objects = [item for item in prod() if item["kind"] != "NetworkPolicy"]
    found = findings(objects)
    assert {each.rule for each in found} == {DOOR}
    assert len(found) == sum(item["kind"] == "StatefulSet" for item in objects)
    assert all("no NetworkPolicy closes" in each.what for each in found)
