"""The parts of dangerous changes of a stack: the places, and the changes."""

import copy
import json
from collections.abc import Callable
from typing import Any

from policies.guardrails.objects import pods
from tests.cases import GONE
from tests.components.objects import selected

from .stacks import Object, Objects, place

Places = Callable[[Objects], list[Any]]
Change = Callable[[Any], None]


Danger = tuple[str, Places, Change]
"""A description of a danger, the places where it is possible, and the change."""

# ---- places ----


def every(*kinds: str, having: str = "") -> Places:
    return lambda stack: [each for each in stack if each["kind"] in kinds and having in json.dumps(each)]


def specs(stack: Objects) -> list[Any]:
    return [each.spec for each in pods(stack)]


def containers(stack: Objects) -> list[Any]:
    return [one for each in pods(stack) for one in (*each.init_containers, *each.main_containers)]


def tritons(stack: Objects) -> list[Any]:
    return [one for one in containers(stack) if "tritonserver" in json.dumps(one.get("command"))]


def controlled(stack: Objects) -> list[Any]:
    return [one for one in tritons(stack) if RESTRICTED in json.dumps(one.get("command"))]


def polling(stack: Objects) -> list[Any]:
    return [one for one in tritons(stack) if RESTRICTED not in json.dumps(one.get("command"))]


def mounts(stack: Objects) -> list[Any]:
    return [mount for one in containers(stack) for mount in one.get("volumeMounts", [])]


def scratch(stack: Objects) -> list[Any]:
    return [volume for spec in specs(stack) for volume in spec["volumes"] if "emptyDir" in volume]


def models(stack: Objects) -> list[Any]:
    """Each pod with a claim, and the claim: a change that makes it writable also mounts it so."""
    return [(spec, volume) for spec in specs(stack) for volume in spec["volumes"] if "persistentVolumeClaim" in volume]


def services(of: str) -> Places:
    """The Services of the proxy or of servers, without headless ones."""

    def found(stack: Objects) -> list[Any]:
        own = [each for each in stack if each["kind"] == "Service" and each["spec"].get("clusterIP") != "None"]
        return [each for each in own if (each["metadata"]["name"] == "inference-proxy") is (of == "proxy")]

    return found


def allowed(direction: str, named: str = "") -> Places:
    """The rules of NetworkPolicies for pods of the stack in one direction, if the policy's name has this prefix."""
    return lambda stack: [
        rule
        for each in stack
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"].startswith(named)
        if selected(stack, each["spec"]["podSelector"])
        for rule in each["spec"].get(direction) or []
    ]


def refusals(stack: Objects) -> list[Any]:
    return [each for each in stack if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "default-deny"]


def whole(stack: Objects) -> list[Any]:
    return [stack]


# ---- changes ----


def put(path: str, value: Any) -> Change:
    """Put a value at a path (see `stacks.place`). A key to remove may be missing."""

    def change(node: Any) -> None:
        node = node[1] if isinstance(node, tuple) else node
        if value is GONE:
            *steps, last = path.split("/")
            for step in steps:
                node = node[int(step)] if step.isdigit() else node.get(step.replace("~", "/"), {})
            node.pop(last.replace("~", "/"), None)
        else:
            place(node, path, copy.deepcopy(value))

    return change


def together(*changes: Change) -> Change:
    def change(node: Any) -> None:
        for each in changes:
            each(node)

    return change


def more(key: str, *values: Any) -> Change:
    return lambda node: node.__setitem__(key, [*node.get(key, []), *copy.deepcopy(values)])


def added(kind: str, **rest: Any) -> Change:
    """Add an object to the namespace of the stack, or to none if it is cluster-wide."""

    def change(stack: Objects) -> None:
        metadata = {"name": "danger"}
        if not kind.startswith(("Cluster", "Admin")) and kind != "PersistentVolume":
            metadata["namespace"] = next(each["metadata"]["namespace"] for each in stack if each["kind"] == "Service")
        stack.append({"apiVersion": "v1", "kind": kind, "metadata": metadata, **copy.deepcopy(rest)})

    return change


def removed(kind: str) -> Change:
    def change(stack: Objects) -> None:
        stack[:] = [each for each in stack if each["kind"] != kind]

    return change


def replaced(old: str, new: str, key: str = "command") -> Change:
    return lambda one: one.__setitem__(key, [word.replace(old, new) for word in one[key]])


def in_issuer(**changes: Any) -> Change:
    """Change the first issuer of an access table. None removes a key."""

    def change(item: Object) -> None:
        table = json.loads(item["data"]["access.json"])
        issuer = {**table["issuers"][0], **changes}
        table["issuers"][0] = {key: value for key, value in issuer.items() if value is not None}
        item["data"]["access.json"] = json.dumps(table)

    return change


def granting(**changes: Any) -> Change:
    def change(item: Object) -> None:
        table = json.loads(item["data"]["access.json"])
        rule = {
            "name": "a danger",
            "principals": [],
            "groups": ["g"],
            "actions": ["infer"],
            "servers": ["a"],
            "models": ["m"],
        }
        item["data"]["access.json"] = json.dumps({**table, "rules": [*table["rules"], {**rule, **changes}]})

    return change


ISSUERS = every("ConfigMap", having='\\"issuers\\": [\\n    {')
ACCESS = every("ConfigMap", having="access.json")
RESTRICTED = "model-repository,shared-memory,trace,logging"
POLLING = "shared-memory,trace,logging"


def role(kind: str = "Role", **rule: Any) -> Danger:
    """Add a role with one rule: it may get pods, with these changes."""
    made = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], **rule}
    return ", ".join(f"{key} {value}" for key, value in rule.items()), whole, added(kind, rules=[made])


def bound(kind: str, to: str, subject: str = "operators") -> Change:
    return added(kind, roleRef={"kind": "ClusterRole", "name": to}, subjects=[{"kind": "Group", "name": subject}])


def policy(**spec: Any) -> Change:
    return added("NetworkPolicy", spec={"podSelector": {}, "policyTypes": ["Ingress"], **spec})
