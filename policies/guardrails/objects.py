"""The objects of one environment, as the rules see them. A malformed value counts as absent."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidegate_contracts.labels import ROLE

from .settings import ANNOTATION, Settings, settings_of

Object = Mapping[str, Any]

PART_OF = "app.kubernetes.io/part-of"
OURS = "tidegate"
TRITON = "tritonserver"  # The program.
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet")  # A Job is not among them: it ends.
AUTOSCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    **dict.fromkeys((*WORKLOADS, "ReplicaSet", "ReplicationController", "Job"), ("spec", "template")),
    "ScaledJob": ("spec", "jobTargetRef", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def at(node: Any, *steps: str) -> Any:
    """Return the value at a path of keys, or None."""
    for step in steps:
        node = node.get(step) if isinstance(node, Mapping) else None
    return node


def mapping(node: Any, *steps: str) -> Mapping[str, Any]:
    """Return the mapping at a path, or an empty one."""
    found = at(node, *steps)
    return found if isinstance(found, Mapping) else {}


def items(node: Any, *steps: str) -> Sequence[Any]:
    """Return the list at a path, or an empty one."""
    found = at(node, *steps)
    return found if isinstance(found, list | tuple) else ()


def mappings(node: Any, *steps: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list at a path."""
    return [item for item in items(node, *steps) if isinstance(item, Mapping)]


def number(value: Any) -> int | None:
    """Return a value as a whole number if it is a number or digits, else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None


def text(node: Any, *steps: str, default: str = "") -> str:
    """Return the text at a path, or the default."""
    found = at(node, *steps)
    return found if isinstance(found, str) else default


def texts(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every text in a tree."""
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from texts(value, f"{path}.{key}" if path else str(key))
    else:
        for index, value in enumerate(items(node)):
            yield from texts(value, f"{path}[{mapping(value).get('name', index)}]")


def name_of(item: Object) -> str:
    """Return an object's name."""
    return str(at(item, "metadata", "name") or "")


def namespace_of(item: Object) -> str:
    """Return the namespace of an object. A volume has that of its claim, and a Namespace is its own."""
    if item.get("kind") == "Namespace":
        return name_of(item)
    if item.get("kind") == "PersistentVolume":
        return text(at(item, "spec", "claimRef", "namespace"))
    return text(at(item, "metadata", "namespace"))


def labels_of(item: Object) -> Mapping[str, Any]:
    """Return the labels of an object or a pod template."""
    return mapping(at(item, "metadata", "labels"))


@dataclass(frozen=True)
class Pod:
    """A pod template, and the object that creates pods from it."""

    maker: Object
    template: Mapping[str, Any]

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.template.get("spec"))

    @property
    def labels(self) -> Mapping[str, Any]:
        return labels_of(self.template)

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """Init containers, main containers and ephemeral containers."""
        return [*self.init_containers, *self.main_containers, *mappings(self.spec.get("ephemeralContainers"))]

    @property
    def init_containers(self) -> list[Mapping[str, Any]]:
        """Init containers, including native sidecars."""
        return mappings(self.spec.get("initContainers"))

    @property
    def sidecars(self) -> list[Mapping[str, Any]]:
        return [one for one in self.init_containers if one.get("restartPolicy") == "Always"]

    @property
    def main_containers(self) -> list[Mapping[str, Any]]:
        return mappings(self.spec.get("containers"))

    @property
    def is_proxy(self) -> bool:
        """Whether it has the role of the proxy, and does not run Triton."""
        words = (word for one in self.main_containers for key in ("command", "args") for word in items(one.get(key)))
        return self.labels.get(ROLE) == "proxy" and not any(TRITON in text(word) for word in words)


def matches(selector: Any, labels: Mapping[str, Any]) -> bool:
    """Return whether a label selector matches labels. An empty selector matches all, a missing one none."""
    if not isinstance(selector, Mapping):
        return False
    if any(labels.get(key) != value for key, value in mapping(selector.get("matchLabels")).items()):
        return False
    return all(_fulfils(expression, labels) for expression in mappings(selector.get("matchExpressions")))


def _fulfils(expression: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, values = text(expression.get("key")), items(expression.get("values"))
    tests: Mapping[str, Callable[[], bool]] = {
        "In": lambda: key in labels and labels[key] in values,
        "NotIn": lambda: key not in labels or labels[key] not in values,
        "Exists": lambda: key in labels,
        "DoesNotExist": lambda: key not in labels,
    }
    return tests.get(text(expression.get("operator")), lambda: True)()


@dataclass(frozen=True)
class Environment:
    """The objects of a stack in one namespace, and the settings of the Namespace."""

    namespace: str
    objects: tuple[Object, ...]
    settings: Settings

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        return tuple(pods(self.objects))

    def of_kind(self, *kinds: str) -> list[Object]:
        return [item for item in self.objects if item.get("kind") in kinds]

    @property
    def itself(self) -> Object:
        """The Namespace. If the stack has none, an object with only its name."""
        found = self.of_kind("Namespace")
        return found[0] if found else {"kind": "Namespace", "metadata": {"name": self.namespace}}

    @property
    def workloads(self) -> list[Pod]:
        """The pods of Deployments, StatefulSets and DaemonSets."""
        return [pod for pod in self.pods if pod.maker.get("kind") in WORKLOADS]

    def autoscalers(self, pod: Pod) -> list[Object]:
        """Return the objects that set the number of replicas of a workload."""
        workload = pod.maker.get("kind"), name_of(pod.maker)
        targets = ((item, mapping(at(item, "spec", "scaleTargetRef"))) for item in self.of_kind(*AUTOSCALERS))
        return [item for item, to in targets if (to.get("kind", "Deployment"), to.get("name")) == workload]

    def selected(self, selector: Any) -> list[Pod]:
        return [pod for pod in self.pods if matches(selector, pod.labels)]

    def behind(self, service: Object) -> list[Pod]:
        """Return the pods that a Service selects."""
        selector = at(service, "spec", "selector")
        return self.selected({"matchLabels": selector}) if selector else []

    def bindings_of(self, pod: Pod) -> list[Object]:
        """Return the bindings that name the service account of a pod."""
        account = text(pod.spec.get("serviceAccountName"))
        bindings = self.of_kind("RoleBinding", "ClusterRoleBinding")
        return [each for each in bindings if account in [one.get("name") for one in mappings(each.get("subjects"))]]

    def are_all(self, peers: Sequence[Mapping[str, Any]], true: Callable[[Pod], bool]) -> bool:
        """Return whether all peers of a NetworkPolicy are pods of this namespace for which the function is true. It is
        false if a peer selects no known pod, because the peer could admit unknown ones."""
        found = [self.selected(peer["podSelector"]) if set(peer) == {"podSelector"} else [] for peer in peers]
        return bool(found) and all(some and all(map(true, some)) for some in found)


def pods(objects: Iterable[Object]) -> Iterator[Pod]:
    """Yield the pod template of each object that creates pods."""
    for item in objects:
        steps = TEMPLATES.get(text(item.get("kind")))
        if steps is not None:
            yield Pod(item, mapping(at(item, *steps)))


def environments(objects: Iterable[Object]) -> list[Environment]:
    """Return the environments in a stack: the namespaces with objects of Tidegate, and all objects in them.

    Objects without a namespace, such as ClusterRoles, belong to each of them. A Namespace without settings has those of
    production.
    """
    grouped: dict[str, list[Object]] = {}
    ours: dict[str, Settings] = {}
    for item in objects:
        namespace = namespace_of(item)
        grouped.setdefault(namespace, []).append(item)
        annotation = at(item, "metadata", "annotations", ANNOTATION) if item.get("kind") == "Namespace" else None
        if annotation is not None:
            ours[namespace] = settings_of(annotation)
        elif labels_of(item).get(PART_OF) == OURS:
            ours.setdefault(namespace, Settings())
    everywhere = grouped.get("", []) if ours.keys() - {""} else []
    return [
        Environment(name, (*grouped[name], *everywhere), settings)
        for name, settings in ours.items()
        if name or not everywhere
    ]
