"""The field managers of a live object, as the API server records them in `metadata.managedFields`.

Server-side apply changes the fields that it gets, and removes those that it no longer gets. A field that a person added
by hand stays. This module finds such fields, so that a preview shows them and `up` removes them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

KubernetesObject = dict[str, Any]
Path = tuple[str, ...]
"""Steps as the API server writes them: `f:name` a field, `k:{…}` an element by its keys, `v:…` a value in a set."""

_BY_HAND = ("kubectl", "k9s", "node-fetch", "Mozilla", "dashboard", "HeadlampApp")
"""Prefixes of the names of programs with which people change objects (node-fetch is Lens, Mozilla a dashboard)."""
_NOT_BY_HAND = ("kubectl-rollout",)
"""A restart does not change the declaration, and to undo its annotation would be another restart."""
_OURS = ("helm", "helm-controller", "argocd-controller")
_PULUMI_MADE = "pulumi-kubernetes"
"""Pulumi's field manager when it creates an object. When it changes one, it applies and appends a hash."""


@dataclass(frozen=True)
class Manager:
    """A field manager of an object, and the fields that it set."""

    name: str
    operation: str
    subresource: str
    time: str
    fields: Mapping[str, Any]
    entry: dict[str, Any]  # The API server's record.

    @property
    def is_engine(self) -> bool:
        """Whether this is a tool that deploys whole stacks."""
        if self.operation == "Update":
            return self.name == _PULUMI_MADE
        return self.name in _OURS or self.name.startswith(f"{_PULUMI_MADE}-")

    @property
    def is_hand(self) -> bool:
        by_hand = self.name.startswith(_BY_HAND) and not self.name.startswith(_NOT_BY_HAND)
        return by_hand and self.subresource != "status"


def managers(live: KubernetesObject) -> list[Manager]:
    """Return the field managers of an object."""
    found = []
    for entry in live["metadata"].get("managedFields") or ():
        name, operation, subresource, time = map(entry.get, ("manager", "operation", "subresource", "time"))
        found.append(
            Manager(name or "", operation or "", subresource or "", time or "", entry.get("fieldsV1") or {}, entry)
        )
    return found


def owner(live: KubernetesObject) -> Manager | None:
    """Return the engine that last set an object, or else `kubectl apply --server-side`."""
    found = managers(live)
    candidates = [one for one in found if one.is_engine] or [
        one for one in found if one.operation == "Apply" and one.name == "kubectl"
    ]
    return max(candidates, key=lambda one: one.time, default=None)


def by_hand(live: KubernetesObject) -> set[Path]:
    """Return the fields that people set."""
    return {path for manager in managers(live) if manager.is_hand for path in paths(manager.fields)}


def paths(fields: Mapping[str, Any]) -> set[Path]:
    """Return the path of every owned field and list element."""
    return {path for leaf in _leaves(fields) if (path := _field(leaf))[-1] != "."}


def _field(leaf: Path) -> Path:
    """Return the field of a leaf: `.` below the keys of a list element means the element itself."""
    return leaf[:-1] if leaf[-1] == "." and leaf[:-1] and leaf[-2].startswith("k:") else leaf


def _leaves(fields: Mapping[str, Any], prefix: Path = ()) -> Iterator[Path]:
    for step, inside in fields.items():
        yield from _leaves(inside, (*prefix, step)) if inside else [(*prefix, step)]


def _tree(leaves: Iterable[Path]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for leaf in leaves:
        inside = fields
        for step in leaf:
            inside = inside.setdefault(step, {})
    return fields


def left_over(live: KubernetesObject, wanted: KubernetesObject) -> list[Path]:
    """Return the fields that the object's engine or a person set, but that are no longer wanted. Fields that another
    manager also set, such as an autoscaler, are left out."""
    mine = owner(live)
    ours = by_hand(live) | (paths(mine.fields) if mine else set())
    others = [manager for manager in managers(live) if manager != mine and not manager.is_hand]
    left = ours.difference(*(paths(manager.fields) for manager in others))
    # Labels and annotations belong to many.
    return sorted(path for path in left if path[0] not in ("f:metadata", "f:status") and not find(wanted, path))


def find(item: Any, path: Path) -> list[Any]:
    """Return the value at a path of an object, in a list. The list is empty if there is none."""
    for step in path:
        if not (found := _at(item, step)):
            return []
        item = found[0]
    return [item]


def resolve_conflicts(live: KubernetesObject, gone: Sequence[Path], fresh: KubernetesObject) -> KubernetesObject:
    """Return an object in which each given field is as in the fresh object, or is removed."""
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


def _at(item: Any, step: str) -> list[Any]:
    kind, _, text = step.partition(":")
    if kind == "f" and isinstance(item, Mapping):
        return [item[text]] if text in item else []
    if not isinstance(item, list):
        return []
    if kind == "k":
        keys = json.loads(text)
        # A missing key has its default, such as the protocol TCP.
        mappings = (one for one in item if isinstance(one, Mapping))
        return [one for one in mappings if all(one.get(k, v) == v for k, v in keys.items())][:1]
    if kind == "v":
        return [one for one in item if one == json.loads(text)][:1]
    return item[int(text) : int(text) + 1] if kind == "i" else []


def handed_over(live: KubernetesObject, gone: Sequence[Path], name: str) -> list[dict[str, Any]]:
    """Return an object's managed fields, with some fields of people given to a manager that will remove them."""
    result = []
    for manager in managers(live):
        rest = _tree(leaf for leaf in _leaves(manager.fields) if not manager.is_hand or _field(leaf) not in gone)
        if rest and (manager.name, manager.operation) != (name, "Apply"):
            result.append({**manager.entry, "fieldsV1": rest})
    taken = ((*path, ".") if path[-1].startswith("k:") else path for path in gone)
    return [*result, _entry(live, name, "Apply", taken)]


def of_engine(live: KubernetesObject, name: str, operation: str) -> list[dict[str, Any]]:
    """Return an object's managed fields, with the fields of all engines given to this one."""
    result: list[dict[str, Any]] = []
    ours: list[Path] = []
    for manager in managers(live):
        if manager.is_engine or (manager.name == "kubectl" and manager.operation == "Apply"):
            ours += _leaves(manager.fields)
        else:
            result.append(manager.entry)
    return [*result, _entry(live, name, operation, ours)] if ours else result


def _entry(live: KubernetesObject, name: str, operation: str, leaves: Iterable[Path]) -> dict[str, Any]:
    head = {"apiVersion": live["apiVersion"], "fieldsType": "FieldsV1", "manager": name, "operation": operation}
    return {**head, "fieldsV1": _tree(leaves)}
