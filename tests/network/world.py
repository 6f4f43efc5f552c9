"""Dev and prod of the reference in one cluster, their neighbours, and every connection between them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from components import Environment
from components.evaluate import evaluate
from stacks.images_lock import ImagesLock
from stacks.load import load, parse
from stacks.resolve import resolve
from stacks.validate import validate
from tests.components.objects import containers, of_kind, template

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ("dev", "prod")
DNS_PORTS = (("TCP", 53), ("UDP", 53))
NOBODYS_PORT = 9999  # No container listens there, and no policy opens it.

Object = dict[str, Any]
Port = tuple[str, int]


@dataclass(frozen=True)
class Place:
    """One end of a connection: a pod with its labels, or an address outside of the cluster."""

    name: str
    environment: str = ""
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict, hash=False)
    namespace_labels: dict[str, str] = field(default_factory=dict, hash=False)
    ip: str = "10.0.0.1"
    ports: tuple[Port, ...] = ()  # The ports of connections to it.

    def peer(self) -> Object:
        pod = {"Namespace": self.namespace, "NamespaceLabels": self.namespace_labels, "PodLabels": self.labels}
        return {"Internal": pod if self.namespace else None, "IP": self.ip}


@dataclass(frozen=True)
class Question:
    """May this source talk to this port?"""

    source: Place
    destination: Place
    port: Port

    def traffic(self) -> Object:
        """As cyclonus reads it."""
        protocol, number = self.port
        return {
            "Source": self.source.peer(),
            "Destination": self.destination.peer(),
            "ResolvedPort": number,
            "ResolvedPortName": "",
            "Protocol": protocol,
        }


@cache
def rendered() -> dict[str, list[Object]]:
    tree = load(ROOT / "stacks/inference.yaml").tree
    gpus = next(plane["gpus"] for plane in tree["dataPlanes"] if plane["name"] == "east")
    tree["dataPlanes"] = [{"name": "one", "environments": [*ENVIRONMENTS], "gpus": [{**gpus[0], "nodes": 9}]}]
    tree["environments"][1].pop("rollout", None)  # it names a canary
    definition = validate(parse(yaml.safe_dump(tree, sort_keys=False), "one-cluster.yaml"), ImagesLock())
    found = {}
    for stack in definition.stacks:
        args = resolve(stack, definition.lock)
        found[stack.environment.name] = evaluate(lambda name=stack.name, args=args: Environment(name, args))  # type: ignore[misc]
    return found


@cache
def policies() -> list[Object]:
    return [item for objects in rendered().values() for item in of_kind(objects, "NetworkPolicy")]


def places() -> list[Place]:
    return [*(place for name in ENVIRONMENTS for place in _of(name)), *OUTSIDE]


@cache
def questions() -> list[Question]:
    """Every pair of places, of which one is ours, with every port. A place and itself are two replicas of it."""
    return [
        Question(source, destination, port)
        for source in places()
        for destination in places()
        if source.environment or destination.environment
        for port in destination.ports
    ]


def _of(environment: str) -> Iterator[Place]:
    objects = rendered()[environment]
    (namespace,) = of_kind(objects, "Namespace")
    name = namespace["metadata"]["name"]
    labels = _labels(name) | namespace["metadata"]["labels"]
    for workload in of_kind(objects, "Deployment", "StatefulSet"):
        ports = {
            (port.get("protocol", "TCP"), port["containerPort"])
            for one in containers(workload)
            for port in one.get("ports", [])
        }
        probed = (*sorted(ports), ("TCP", NOBODYS_PORT), ("UDP", NOBODYS_PORT))
        of_pod = template(workload)["metadata"]["labels"]
        yield Place(_kind(workload), environment, name, of_pod, labels, ports=probed)
    probed = (("TCP", 8000), ("UDP", NOBODYS_PORT))
    yield Place("other pod of the namespace", environment, name, {}, labels, ports=probed)


def _kind(workload: Object) -> str:
    if workload["kind"] == "Deployment":
        return "proxy"
    return "on-demand server" if template(workload)["spec"].get("initContainers") else "preload server"


def _labels(namespace: str) -> dict[str, str]:
    return {"kubernetes.io/metadata.name": namespace}


def _around(name: str, namespace: str, labels: dict[str, str]) -> Place:
    ports = (*DNS_PORTS, ("TCP", 443), ("TCP", NOBODYS_PORT))
    return Place(name, "", namespace, labels, _labels(namespace), ports=ports)


LIKE_A_PROXY = {"app.kubernetes.io/name": "inference-proxy", "app.kubernetes.io/instance": "prod"}
OUTSIDE = (
    _around("cluster DNS", "kube-system", {"k8s-app": "kube-dns"}),
    _around("Prometheus", "monitoring", {"app": "prometheus"}),
    _around("ingress controller", "ingress-nginx", {"app": "ingress-nginx"}),
    _around("Domino workspaces", "domino-compute", {}),
    _around("Domino platform", "domino-platform", {}),
    _around("stranger", "elsewhere", {**LIKE_A_PROXY, "tidegate.dev/role": "proxy"}),
    Place("identity provider", ip="203.0.113.10", ports=(("TCP", 443), ("TCP", 80), ("UDP", 443))),
    Place("API server", ip="203.0.113.20", ports=(("TCP", 443), ("TCP", 6443), ("TCP", 80), ("UDP", 443))),
    Place("internet", ip="198.51.100.77", ports=(("TCP", 443), ("UDP", 53))),
)
