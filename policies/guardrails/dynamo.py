"""What the guardrails know of Dynamo: the one Role by which its pods find each other, and whom they let in for that."""

from collections.abc import Mapping
from typing import Any

from tidegate_contracts import dynamo

from .objects import Environment, Object, Pod, at, items, mapping, mappings, name_of, namespace_of, text

SERVER = "tidegate.dev/server"


def is_discovery(role: Object) -> bool:
    """Say whether a role of a namespace grants what Dynamo needs to find workers, and nothing else."""
    return role.get("kind") == "Role" and mappings(role.get("rules")) == list(dynamo.RULES)


def others_bound(environment: Environment, binding: Object) -> list[str]:
    """Return who is bound beside accounts of the namespace whose pods all run Dynamo with the token for it."""
    found = []
    for subject in mappings(binding.get("subjects")):
        name, here = text(subject.get("name")), subject.get("namespace") in (None, namespace_of(binding))
        pods = [pod for pod in environment.pods if _account(pod) == name]
        ours = pods and all(_is_dynamo(pod) and dynamo.TOKEN in mappings(pod.spec.get("volumes")) for pod in pods)
        if subject.get("kind") != "ServiceAccount" or not here or not ours:
            found.append(name)
    return found


def needs_token(environment: Environment, pod: Pod, volume: Mapping[str, Any]) -> bool:
    """Say whether a volume is a token that is good for that Role alone, and that only what runs Dynamo mounts."""
    mounting = [one for one in pod.containers if volume.get("name") in _mounted(one)]
    roles = [role for role in environment.of_kind("Role") if is_discovery(role)]
    bound = [
        (at(binding, "roleRef", "kind"), at(binding, "roleRef", "name"))
        for binding in environment.of_kind("RoleBinding", "ClusterRoleBinding")
        if any(text(one.get("name")) == _account(pod) for one in mappings(binding.get("subjects")))
    ]
    return (
        volume == dynamo.TOKEN
        and all(_module(one) for one in mounting)
        and bool(bound)
        and {*bound} <= {("Role", name_of(role)) for role in roles}
    )


def lets_in_its_own(environment: Environment, pod: Pod, rule: Mapping[str, Any]) -> bool:
    """Say whether a rule lets pods of one server of Dynamo come to each other: frontends, or workers with answers."""
    peers = mappings(rule.get("from"))
    if not _is_dynamo(pod) or not peers or any(set(peer) != {"podSelector"} for peer in peers):
        return False
    come = [one for peer in peers for one in environment.selected(peer["podSelector"])]
    answers = [one.get("port") for one in mappings(rule.get("ports"))] == [dynamo.RESPONSE_PORT]
    return all(
        _is_dynamo(one)
        and one.labels.get(SERVER) == pod.labels.get(SERVER)
        and (answers or _module(one.main_containers[0]) == dynamo.FRONTEND)
        for one in come
    )


def _is_dynamo(pod: Pod) -> bool:
    """Say whether all main containers of a pod run Dynamo."""
    return bool(pod.main_containers) and all(map(_module, pod.main_containers))


def _module(container: Mapping[str, Any]) -> str:
    """Return the module of Dynamo that a container runs; an empty text where it is another program."""
    command = items(container.get("command"))
    is_module = len(command) == 3 and command[:2] == ["python3", "-m"] and text(command[2]).startswith("dynamo.")
    return text(command[2]) if is_module else ""


def _account(pod: Pod) -> str:
    return text(pod.spec.get("serviceAccountName"))


def _mounted(container: Mapping[str, Any]) -> set[Any]:
    return {mapping(one).get("name") for one in items(container.get("volumeMounts"))}
