"""What a change means for pods that it does not restart: what they see of it, and what they do not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .models import Serving, serving
from .restarts import Restart, template_changes
from .workloads import Workload, at, items, text, workloads

Tree = Mapping[str, Any]
MODEL = "model"
"""What a notice about a model has for a kind."""


@dataclass(frozen=True)
class Notice:
    """Something that happens without a restart, and that people should know."""

    kind: str
    name: str
    what: str
    grave: bool = False
    """Whether it is as bad as a deletion."""


def notices(before: Iterable[Tree], after: Iterable[Tree], restarts: Iterable[Restart]) -> list[Notice]:
    """Return what happens without a restart; `restarts` are those of the same change."""
    before, after = list(before), list(after)
    old, new = workloads(before), workloads(after)
    rolled = {restart.workload.identity for restart in restarts}
    return [
        *_scaled(old, new),
        *_not_by_itself(old, new),
        *_settings(before, after, new, rolled),
        *_accounts(before, after, new),
        *_models(serving(before), serving(after)),
    ]


def _scaled(old: Mapping[Any, Workload], new: Mapping[Any, Workload]) -> Iterator[Notice]:
    for key, workload in new.items():
        before = old.get(key)
        if before is None or (before.least, before.most) == (workload.least, workload.most):
            continue
        what = f"{before.pods} → {workload.pods}: "
        if grave := workload.most == 0:
            what += "NOTHING SERVES ANY LONGER"
        elif workload.most < before.most:
            what += "the last ones end" + (", and what they held in memory is cold" if workload.pool else "")
        else:
            what += "no running pod restarts"
        yield Notice(workload.kind, workload.name, what, grave)


def _not_by_itself(old: Mapping[Any, Workload], new: Mapping[Any, Workload]) -> Iterator[Notice]:
    for key, workload in new.items():
        if key in old and workload.replacing(workload.most).by_hand and template_changes(old[key], workload):
            yield Notice(workload.kind, workload.name, "its pods stay as they are until somebody deletes them")


def _settings(
    before: Iterable[Tree], after: Iterable[Tree], new: Mapping[Any, Workload], rolled: set[tuple[str, str, str]]
) -> Iterator[Notice]:
    for name, namespace in _changed("ConfigMap", before, after):
        users = [workload for workload in new.values() if workload.identity[1] == namespace]
        follow = [one.name for one in users if _mounts(one, name) and one.identity not in rolled]
        stale = [one.name for one in users if _reads_once(one, name) and one.identity not in rolled]
        if follow:
            yield Notice(
                "ConfigMap", name, f"running pods of {', '.join(follow)} read it again within minutes: no restart"
            )
        if stale:
            what = f"running pods of {', '.join(stale)} KEEP THE OLD VALUES until they restart"
            yield Notice("ConfigMap", name, what)


def _accounts(before: Iterable[Tree], after: Iterable[Tree], new: Mapping[Any, Workload]) -> Iterator[Notice]:
    for name, namespace in _changed("ServiceAccount", before, after):
        if any(one.pod.get("serviceAccountName") == name and one.identity[1] == namespace for one in new.values()):
            yield Notice("ServiceAccount", name, "reaches only pods that start after the change")


def _models(was: Serving, will: Serving) -> Iterator[Notice]:
    before, after = was.places(), will.places()
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            (server, pool), there = after[name], will.loading.get(after[name], "")
            how = "until its first request there" if there == "on-demand" else "until a replica there has loaded it"
            old = "/".join(before[name])
            yield Notice(MODEL, name, f"moves from {old} to {server}/{pool}: cold {how}")
    for name in sorted(before.keys() - after.keys()):
        yield Notice(MODEL, name, "IS NO LONGER SERVED", grave=True)


def _changed(kind: str, before: Iterable[Tree], after: Iterable[Tree]) -> Iterator[tuple[str, str]]:
    """Yield name and namespace of the objects of a kind that were there before and differ."""
    old = {_place(item): item for item in before if item.get("kind") == kind}
    for item in after:
        place = _place(item)
        if item.get("kind") == kind and place in old and _content(old[place]) != _content(item):
            yield place


def _place(item: Tree) -> tuple[str, str]:
    return text(item, "metadata", "name"), text(item, "metadata", "namespace")


def _content(item: Tree) -> Any:
    inside = {key: value for key, value in item.items() if key not in ("apiVersion", "metadata")}
    return inside, at(item, "metadata", "annotations")


def _mounts(workload: Workload, config_map: str) -> bool:
    """Say whether pods see changes of a ConfigMap: mounted as a whole folder they do."""
    names = {text(volume, "name") for volume in _volumes(workload, config_map)}
    return bool(names) and not _by_sub_path(workload, names)


def _reads_once(workload: Workload, config_map: str) -> bool:
    names = {text(volume, "name") for volume in _volumes(workload, config_map)}
    return _by_sub_path(workload, names) or any(
        text(source, "configMapRef", "name") == config_map
        or text(source, "valueFrom", "configMapKeyRef", "name") == config_map
        for container in _containers(workload)
        for source in (*items(container, "envFrom"), *items(container, "env"))
    )


def _volumes(workload: Workload, config_map: str) -> list[Tree]:
    return [one for one in items(workload.pod, "volumes") if text(one, "configMap", "name") == config_map]


def _by_sub_path(workload: Workload, volumes: set[str]) -> bool:
    return any(
        text(mount, "name") in volumes and mount.get("subPath")
        for container in _containers(workload)
        for mount in items(container, "volumeMounts")
    )


def _containers(workload: Workload) -> Sequence[Tree]:
    return (*items(workload.pod, "initContainers"), *items(workload.pod, "containers"))
