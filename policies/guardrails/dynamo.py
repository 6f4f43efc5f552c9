"""Exceptions for Dynamo: the one Role with which its pods find each other, and their ingress rules."""

from collections.abc import Mapping
from typing import Any

from tidegate_contracts import dynamo
from tidegate_contracts.labels import SERVER

from .objects import Environment, Object, Pod, at, items, mapping, mappings, name_of, namespace_of, text

_ELSEWHERE = ("PYTHON", "LD_")
"""Prefixes of the variables that let Python or the dynamic loader find code outside the image."""


def is_discovery(role: Object) -> bool:
    """Return whether a Role grants exactly what Dynamo needs to find workers."""
    return role.get("kind") == "Role" and mappings(role.get("rules")) == list(dynamo.RULES)


def others_bound(environment: Environment, binding: Object) -> list[str]:
    """Return the bound subjects other than accounts of the namespace whose pods all run Dynamo with its token."""
    found = []
    for subject in mappings(binding.get("subjects")):
        name, here = text(subject.get("name")), subject.get("namespace") in (None, namespace_of(binding))
        pods = [pod for pod in environment.pods if text(pod.spec.get("serviceAccountName")) == name]
        ours = pods and all(_is_dynamo(pod) and dynamo.TOKEN in mappings(pod.spec.get("volumes")) for pod in pods)
        if subject.get("kind") != "ServiceAccount" or not here or not ours:
            found.append(name)
    return found


def needs_token(environment: Environment, pod: Pod, volume: Mapping[str, Any]) -> bool:
    """Return whether a volume is a token for that Role only, and only containers with Dynamo mount it."""
    mounting = [one for one in pod.containers if text(volume.get("name")) in mounted(one)]
    roles = [role for role in environment.of_kind("Role") if is_discovery(role)]
    bindings = environment.bindings_of(pod)
    bound = [(at(binding, "roleRef", "kind"), at(binding, "roleRef", "name")) for binding in bindings]
    return (
        volume == dynamo.TOKEN
        and all(_module(one) for one in mounting)
        and bool(bound)
        and {*bound} <= {("Role", name_of(role)) for role in roles}
    )


def admits_own_namespace(environment: Environment, pod: Pod, rule: Mapping[str, Any]) -> bool:
    """Return whether a rule admits only pods of the same Dynamo server: frontends, or workers with responses."""
    server = text(pod.labels.get(SERVER))
    ports = [(one.get("port"), one.get("endPort")) for one in mappings(rule.get("ports"))]
    for_responses = ports == [(dynamo.RESPONSE_PORT, None)]

    def is_own(one: Pod) -> bool:
        ours = _is_dynamo(one) and one.labels.get(SERVER) == server
        return ours and (for_responses or _module(one.main_containers[0]) == dynamo.FRONTEND)

    return bool(server) and _is_dynamo(pod) and environment.are_all(mappings(rule.get("from")), is_own)


def _is_dynamo(pod: Pod) -> bool:
    """Return whether all main containers of a pod run Dynamo."""
    return bool(pod.main_containers) and all(map(_module, pod.main_containers))


def _module(container: Mapping[str, Any]) -> str:
    """Return the module of Dynamo that a container runs, or an empty text."""
    command = items(container.get("command"))
    is_module = len(command) == 3 and command[:2] == ["python3", "-m"] and command[2] in dynamo.MODULES
    variables = [text(one.get("name")) for one in mappings(container.get("env"))]
    # Python also imports from its working directory, and the variables of envFrom are unknown.
    is_moved = container.get("workingDir") or container.get("envFrom")
    is_moved = is_moved or any(name.startswith(_ELSEWHERE) for name in variables)
    return text(command[2]) if is_module and not is_moved else ""


def mounted(container: Mapping[str, Any]) -> set[str]:
    """Return the names of the volumes that a container mounts."""
    return {text(mapping(one).get("name")) for one in items(container.get("volumeMounts"))}
