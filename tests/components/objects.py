from collections.abc import Iterator, Mapping
from typing import Any

from components.evaluate import KubernetesObject

WORKLOADS = ("Deployment", "StatefulSet")


def of_kind(objects: list[KubernetesObject], *kinds: str) -> list[KubernetesObject]:
    return [item for item in objects if item["kind"] in kinds]


def named(objects: list[KubernetesObject], kind: str, name: str) -> KubernetesObject:
    (found,) = (item for item in of_kind(objects, kind) if item["metadata"]["name"] == name)
    return found


def name_of(item: KubernetesObject) -> str:
    return f"{item['kind']} {item['metadata']['name']}"


def template(workload: KubernetesObject) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]
    return found


def containers(workload: KubernetesObject) -> list[dict[str, Any]]:
    """All containers of a workload's pods, including native sidecars."""
    spec = template(workload)["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def is_engine(workload: KubernetesObject) -> bool:
    """Whether it has the OpenAI API: such servers have no gRPC, and not all have metrics."""
    return containers(workload)[-1]["name"] in ("engine", "frontend")


def ports(workload: KubernetesObject) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for one in containers(workload) for port in one.get("ports", [])}


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In", expression
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return True


def selected(objects: list[KubernetesObject], selector: Mapping[str, Any]) -> list[KubernetesObject]:
    return [item for item in of_kind(objects, *WORKLOADS) if matches(selector, template(item)["metadata"]["labels"])]


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value
