"""Who set which field of a live object: what the API server notes in `metadata.managedFields`.

Server-side apply changes the fields that it is given, and takes away those that it was given the last time. A field
that somebody's hand added stays. Here such fields are found, so that a preview shows them and `up` takes them away.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

KubernetesObject = dict[str, Any]
Path = tuple[str, ...]
"""Steps as the API server writes them: `f:name` a field, `k:{…}` an element by its keys, `v:…` a value in a set."""

_BY_HAND = ("kubectl", "k9s", "node-fetch", "Mozilla", "dashboard", "HeadlampApp")
"""Beginnings of the names of programs that people change objects with (node-fetch is Lens, Mozilla a dashboard)."""
_NOT_BY_HAND = ("kubectl-rollout",)
"""A restart is no change of what is declared; to undo its annotation would be another restart."""
_OURS = ("helm", "helm-controller", "argocd-controller")
_PULUMI_MADE = "pulumi-kubernetes"
"""Who Pulumi is when it makes an object; when it changes one it applies, with a hash behind that name."""


@dataclass(frozen=True)
class Manager:
    """Who set fields of an object, and which."""

    name: str
    operation: str
    subresource: str
    time: str
    fields: Mapping[str, Any]

    @property
    def is_engine(self) -> bool:
        """Whether that was a tool that brings whole stacks up."""
        if self.operation == "Update":
            return self.name == _PULUMI_MADE
        return self.name in _OURS or self.name.startswith(f"{_PULUMI_MADE}-")

    @property
    def is_hand(self) -> bool:
        """Whether that was a person."""
        by_hand = self.name.startswith(_BY_HAND) and not self.name.startswith(_NOT_BY_HAND)
        return by_hand and self.subresource != "status"


def managers(live: KubernetesObject) -> list[Manager]:
    """Return who set fields of an object."""
    return [
        Manager(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("subresource", ""),
            entry.get("time", ""),
            entry.get("fieldsV1") or {},
        )
        for entry in live["metadata"].get("managedFields") or ()
    ]


def owner(live: KubernetesObject) -> Manager | None:
    """Return the engine that set an object, or else `kubectl apply --server-side`; the last one."""
    found = managers(live)
    candidates = [one for one in found if one.is_engine] or [
        one for one in found if one.operation == "Apply" and one.name == "kubectl"
    ]
    return max(candidates, key=lambda one: one.time, default=None)


def by_hand(live: KubernetesObject) -> set[Path]:
    """Return the fields that people set."""
    return {path for manager in managers(live) if manager.is_hand for path in paths(manager.fields)}


def paths(fields: Mapping[str, Any], prefix: Path = ()) -> Iterator[Path]:
    """Yield the path of every field, and of every list element, that somebody owns."""
    for step, inside in fields.items():
        if step == ".":
            if prefix and prefix[-1].startswith("k:"):
                yield prefix
        elif inside:
            yield from paths(inside, (*prefix, step))
        else:
            yield (*prefix, step)


def left_over(live: KubernetesObject, wanted: KubernetesObject) -> list[Path]:
    """Return the fields that the object's engine, or a person, set and that are no longer wanted.

    What also somebody else set, such as an autoscaler, is theirs.
    """
    mine = owner(live)
    ours: set[Path] = set(paths(mine.fields)) if mine else set()
    ours |= by_hand(live)
    theirs = {
        path for manager in managers(live) if manager != mine and not manager.is_hand for path in paths(manager.fields)
    }
    return sorted(path for path in ours - theirs if _is_declared(path) and not has(wanted, path))


def _is_declared(path: Path) -> bool:
    """Say whether a field is one that people declare; labels and annotations belong to many."""
    return path[0] not in ("f:metadata", "f:status")


def has(item: Any, path: Path) -> bool:
    """Say whether an object has a field, or something at its place."""
    return not path or any(has(inside, path[1:]) for inside in _at(item, path[0]))


def settled(live: KubernetesObject, gone: Sequence[Path], fresh: KubernetesObject) -> KubernetesObject:
    """Return an object after some fields were given up: each is as in a fresh object, or is not there."""
    result = deepcopy(live)
    for path in gone:
        _settle(result, path, fresh)
    return result


def _settle(item: Any, path: Path, fresh: Any) -> None:
    step, rest = path[0], path[1:]
    models = _at(fresh, step)
    for inside in _at(item, step):
        if rest:
            _settle(inside, rest, models[0] if models else None)
        if isinstance(item, dict):
            if not rest and models:
                item[step.removeprefix("f:")] = deepcopy(models[0])
            elif not rest or (inside in ({}, []) and not models):
                item.pop(step.removeprefix("f:"), None)
        elif not models and (not rest or inside in ({}, [])):
            item[:] = [other for other in item if other is not inside]


def differ(one: Any, other: Any, path: Path) -> bool:
    """Say whether two objects differ at a path."""
    if not path:
        return bool(one != other)
    ones, others = _at(one, path[0]), _at(other, path[0])
    if not ones or not others:
        return bool(ones or others)
    return differ(ones[0], others[0], path[1:])


def _at(item: Any, step: str) -> list[Any]:
    """Return what stands at a step: nothing, or one thing."""
    kind, _, text = step.partition(":")
    if kind == "f" and isinstance(item, Mapping):
        return [item[text]] if text in item else []
    if not isinstance(item, list):
        return []
    if kind == "k":
        keys = json.loads(text)
        # A key that is not written has its default, such as the protocol TCP.
        return [one for one in item if isinstance(one, Mapping) and all(one.get(k, v) == v for k, v in keys.items())][
            :1
        ]
    if kind == "v":
        value = json.loads(text)
        return [one for one in item if one == value][:1]
    return item[int(text) : int(text) + 1] if kind == "i" else []


def handed_over(live: KubernetesObject, gone: Sequence[Path], name: str) -> list[dict[str, Any]]:
    """Return an object's managed fields after some of people's are another one's, who may then take them away."""
    result = []
    fields: dict[str, Any] = {}
    for path in gone:
        _add(fields, path)
    for entry, manager in zip(live["metadata"]["managedFields"], managers(live), strict=True):
        rest = deepcopy(entry.get("fieldsV1") or {})
        if manager.is_hand:
            for path in gone:
                _drop(rest, path)
        if rest and (manager.name, manager.operation) != (name, "Apply"):
            result.append({**entry, "fieldsV1": rest})
    head = {"apiVersion": live["apiVersion"], "fieldsType": "FieldsV1", "manager": name, "operation": "Apply"}
    return [*result, {**head, "fieldsV1": fields}]


def _add(fields: dict[str, Any], path: Path) -> None:
    for step in path:
        fields = fields.setdefault(step, {})
    if path[-1].startswith("k:"):
        fields["."] = {}


def _drop(fields: dict[str, Any], path: Path) -> None:
    inside = fields.get(path[0])
    if inside is None:
        return
    if len(path) == 1:
        inside.pop(".", None)
    else:
        _drop(inside, path[1:])
    if not inside:
        del fields[path[0]]


def of_engine(live: KubernetesObject, name: str, operation: str) -> list[dict[str, Any]]:
    """Return an object's managed fields with all that any engine set as this one's."""
    result: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    for entry, manager in zip(live["metadata"].get("managedFields") or (), managers(live), strict=True):
        if manager.is_engine or (manager.name == "kubectl" and manager.operation == "Apply"):
            fields = _merged(fields, entry.get("fieldsV1") or {})
        else:
            result.append(entry)
    head = {"apiVersion": live["apiVersion"], "fieldsType": "FieldsV1", "manager": name, "operation": operation}
    return [*result, {**head, "fieldsV1": fields}] if fields else result


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {step: _merged(one.get(step) or {}, other.get(step) or {}) for step in dict.fromkeys((*one, *other))}
