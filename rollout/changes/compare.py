"""The differences between two lists of Kubernetes objects, by field, and whether they force a replacement."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tidegate_contracts.proxy_process import CHECKSUM

from components.apply_order import apply_key
from stacks.resolve import settings

from .secrets import Hidden, hidden, hidden_tree

KubernetesObject = dict[str, Any]
Verb = Literal["created", "changed", "replaced", "deleted"]
Step = str | int
Identity = tuple[str, str, str]  # Kind, namespace and name: what identifies an object among those of a stack.
WORDS: Mapping[Verb, str] = {"created": "created", "changed": "changed", "replaced": "REPLACED", "deleted": "DELETED"}


MISSING = object()  # Stands for a missing field.
DATASETS = ("PersistentVolume", "PersistentVolumeClaim")  # Kinds that hold models, or lead to them.
KEPT = ("Namespace", *DATASETS)  # Kinds that Tidegate never deletes: they hold data, or objects that do.
# Immutable fields: to change one, Kubernetes needs a new object.
_MUTABLE_STATEFULSET = {
    "replicas", "template", "updateStrategy", "ordinals", "minReadySeconds", "persistentVolumeClaimRetentionPolicy",
    "revisionHistoryLimit",
}  # fmt: skip
# Everything else in a PersistentVolume's spec is its source (csi, nfs, hostPath, …) or limits its use.
_MUTABLE_VOLUME = {
    "accessModes", "capacity", "claimRef", "mountOptions", "persistentVolumeReclaimPolicy", "storageClassName",
    "volumeAttributesClassName",
}  # fmt: skip
_DEFINITION = f"metadata.annotations[{settings.ANNOTATION}]"
_LIST_KEYS = (("name",), ("name", "pool"), ("mountPath",), ("containerPort",), ("port",), ("key",), ("version",))
"""Keys that identify the items of a list. The first that fits is used. A model has one item per pool."""


@dataclass(frozen=True)
class FieldChange:
    """One field: its path, and its values before and after."""

    path: tuple[Step, ...]
    old: Any
    new: Any
    element: bool = False  # Whether this is an element that the list at this path lost or gained.

    @property
    def place(self) -> str:
        """The path as text: `spec.template.spec.containers[triton].image`."""
        out = ""
        for step in self.path:
            if isinstance(step, int) or ("[" not in step and set(step) & set("./ ")):
                out += f"[{step}]"
            else:
                out += ("." if out else "") + step
        return out.replace(_DEFINITION, "definition")


@dataclass(frozen=True)
class ObjectChange:
    """One object that differs. `immutable` are the fields that force a replacement."""

    verb: Verb
    kind: str
    name: str
    namespace: str = ""
    fields: tuple[FieldChange, ...] = ()
    immutable: tuple[str, ...] = ()


def compare(old: Iterable[KubernetesObject], new: Iterable[KubernetesObject]) -> list[ObjectChange]:
    """Return the objects that are created, changed, replaced or deleted, in apply order."""
    before, after = ({identity(item): item for item in items} for items in (old, new))
    every = {**before, **after}
    changes = []
    for key in sorted(sorted(every), key=lambda key: apply_key(every[key])):
        kind, namespace, name = key
        if key not in before or key not in after:
            changes.append(ObjectChange("deleted" if key in before else "created", kind, name, namespace))
        elif fields := field_changes(before[key], after[key]):
            paths = [[str(step).partition("[")[0] or str(step) for step in change.path] for change in fields]
            immutable = sorted({".".join(field) for path in paths if (field := _immutable(kind, before[key], path))})
            verb: Verb = "replaced" if immutable else "changed"
            changes.append(ObjectChange(verb, kind, name, namespace, tuple(fields), tuple(immutable)))
    return changes


def tally(changes: Iterable[ObjectChange]) -> str:
    """Return `1 created, 2 changed, 1 REPLACED`."""
    counts = Counter(change.verb for change in changes)
    return ", ".join(f"{counts[verb]} {word}" for verb, word in WORDS.items() if counts[verb])


def identity(item: KubernetesObject) -> Identity:
    """Return kind, namespace and name of an object."""
    head = item["metadata"]
    return item["kind"], head.get("namespace", ""), head["name"]


def _immutable(kind: str, old: Mapping[str, Any], path: Sequence[str]) -> Sequence[str]:
    """Return the immutable field of a changed path, such as `spec.volumeClaimTemplates`. Empty if it is mutable."""
    if kind in ("ConfigMap", "Secret"):
        return path[:2] if old.get("immutable") is True and path[0] in ("data", "binaryData", "immutable") else ()
    if path[0] != "spec" or len(path) < 2:
        return ()
    inside = path[1]
    if (
        (kind == "StatefulSet" and inside not in _MUTABLE_STATEFULSET)
        or (kind in ("Deployment", "DaemonSet") and inside == "selector")
        or (kind == "PersistentVolume" and inside not in _MUTABLE_VOLUME)
        or (kind == "Service" and inside == "clusterIP")
        or kind == "ResourceClaimTemplate"
    ):
        return path[:2]
    if kind == "PersistentVolumeClaim" and inside != "volumeAttributesClassName":
        # Not even the requests can grow, because no driver provisioned our volumes.
        return path[: 3 if inside == "resources" else 2]
    return ()


def field_changes(old: KubernetesObject, new: KubernetesObject) -> list[FieldChange]:
    """Return every field in which two versions of an object differ. Possible secrets in it are `Hidden`. Leaves out the
    checksum of a file that itself differs."""
    found = list(_walk(hidden(old), hidden(new), ()))
    files = {str(each.path[1]) for each in found if each.path[0] == "data" and len(each.path) > 1}
    checksums = {("data", f"{file}{CHECKSUM}") for file in files}
    return [each for each in found if tuple(each.path) not in checksums]


def _walk(old: Any, new: Any, path: tuple[Step, ...]) -> Iterator[FieldChange]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys(), key=str):  # objects edited by hand may have keys that are not texts
            yield from _walk(old.get(key, MISSING), new.get(key, MISSING), (*path, str(key)))
    elif isinstance(old, list) and isinstance(new, list) and old != new:
        yield from _walk_lists(old, new, path)
    elif type(old) is not type(new) or old != new:
        was, now = (json_tree(value.whole if isinstance(value, Hidden) else value) for value in (old, new))
        if was is not None and now is not None and was != now:
            yield from _walk(hidden_tree(was), hidden_tree(now), path)
        else:
            yield FieldChange(path, old, new)


def _walk_lists(old: list[Any], new: list[Any], path: tuple[Step, ...]) -> Iterator[FieldChange]:
    key = next((key for key in _LIST_KEYS if _names(old, key) and _names(new, key)), None)
    if key is None:
        yield from _walk_elements(old, new, path)
        return
    before, after = ({"/".join(str(item[each]) for each in key): item for item in items} for items in (old, new))
    for name in {**before, **after}:
        yield from _walk(before.get(name, MISSING), after.get(name, MISSING), (*path[:-1], f"{path[-1]}[{name}]"))
    common = [name for name in before if name in after], [name for name in after if name in before]
    if common[0] != common[1]:
        yield FieldChange((*path, "order"), common[0], common[1])


def _walk_elements(old: list[Any], new: list[Any], path: tuple[Step, ...]) -> Iterator[FieldChange]:
    gone, come = list(old), []
    for item in new:
        if item in gone:
            gone.remove(item)
        else:
            come.append(item)
    if not old or not new:
        yield FieldChange(path, old, new)  # an empty list can mean "all", and must be shown
    elif len(old) == len(new) and len(gone) in (0, sum(a != b for a, b in zip(old, new, strict=True))):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _walk(before, after, (*path, index))
    else:
        yield from (FieldChange(path, item, MISSING, element=True) for item in gone)
        yield from (FieldChange(path, MISSING, item, element=True) for item in come)


def _names(items: Sequence[Any], key: Sequence[str]) -> bool:
    names = [tuple(item.get(each) for each in key) if isinstance(item, Mapping) else (None,) for item in items]
    return all(isinstance(part, (str, int)) for name in names for part in name) and len(set(names)) == len(names)


def json_tree(text: Any) -> dict[str, Any] | list[Any] | None:
    """Return the tree in a text that is JSON, such as a file in a ConfigMap. None for anything else."""
    try:
        return json.loads(text) if isinstance(text, str) and text[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None
