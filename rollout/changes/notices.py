"""What a change means for pods that it does not restart: what they see of it, and what they do not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .compare import Identity
from .restarts import Restart, template_changes
from .workloads import Serving, Tree, Workload, at, items, serving, text, workloads

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
        *_pods(old, new),
        *_settings(before, after, [one for one in new.values() if one.identity not in rolled]),
        *_accounts(before, after, new.values()),
        *_models(serving(before), serving(after)),
    ]


def _pods(old: Mapping[Identity, Workload], new: Mapping[Identity, Workload]) -> Iterator[Notice]:
    for before, workload in ((old[key], new[key]) for key in new if key in old):
        if (before.least, before.most) != (workload.least, workload.most):
            what = f"{before.pods} → {workload.pods}: "
            if grave := workload.most == 0:
                what += "NOTHING SERVES ANY LONGER"
            elif workload.most < before.most:
                what += "the last ones end" + (", and what they held in memory is cold" if workload.pool else "")
            else:
                what += "no running pod restarts"
            yield Notice(workload.kind, workload.name, what, grave)
        if workload.replacing(workload.most).by_hand and template_changes(before, workload):
            yield Notice(workload.kind, workload.name, "its pods stay as they are until somebody deletes them")


def _settings(before: list[Tree], after: list[Tree], running: Iterable[Workload]) -> Iterator[Notice]:
    for name, namespace in _changed("ConfigMap", before, after):
        ways = {one.name: _sees(one, name) for one in running if one.namespace == namespace}
        if follow := ", ".join(user for user, (follows, _) in ways.items() if follows):
            yield Notice("ConfigMap", name, f"running pods of {follow} read it again within minutes: no restart")
        if stale := ", ".join(user for user, (_, once) in ways.items() if once):
            yield Notice("ConfigMap", name, f"running pods of {stale} KEEP THE OLD VALUES until they restart")


def _accounts(before: list[Tree], after: list[Tree], new: Iterable[Workload]) -> Iterator[Notice]:
    users = {(text(one.pod, "serviceAccountName"), one.namespace) for one in new}
    for account in _changed("ServiceAccount", before, after):
        if account in users:
            yield Notice("ServiceAccount", account[0], "reaches only pods that start after the change")


def _models(was: Serving, will: Serving) -> Iterator[Notice]:
    before, after = was.places(), will.places()
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            there = will.loading.get(after[name], "")
            how = "until its first request there" if there == "on-demand" else "until a replica there has loaded it"
            way = f"moves from {'/'.join(before[name])} to {'/'.join(after[name])}"
            yield Notice(MODEL, name, f"{way}: cold {how}")
    for name in sorted(before.keys() - after.keys()):
        yield Notice(MODEL, name, "IS NO LONGER SERVED", grave=True)


def _changed(kind: str, before: list[Tree], after: list[Tree]) -> Iterator[tuple[str, str]]:

    def contents(objects: list[Tree]) -> dict[tuple[str, str], Any]:
        return {
            (text(item, "metadata", "name"), text(item, "metadata", "namespace")): (
                {key: value for key, value in item.items() if key not in ("apiVersion", "metadata")},
                at(item, "metadata", "annotations"),
            )
            for item in objects
            if item.get("kind") == kind
        }

    old = contents(before)
    yield from (place for place, content in contents(after).items() if place in old and old[place] != content)


def _sees(workload: Workload, config_map: str) -> tuple[bool, bool]:
    """Say whether pods follow a ConfigMap, which they do where it is mounted as a whole folder; and read it once."""
    volumes = items(workload.pod, "volumes")
    names = {text(volume, "name") for volume in volumes if text(volume, "configMap", "name") == config_map}
    mounts = [mount for container in workload.containers for mount in items(container, "volumeMounts")]
    part = any(text(mount, "name") in names and mount.get("subPath") for mount in mounts)
    once = part or any(
        config_map in (text(source, "configMapRef", "name"), text(source, "valueFrom", "configMapKeyRef", "name"))
        for container in workload.containers
        for source in (*items(container, "envFrom"), *items(container, "env"))
    )
    return bool(names) and not part, once
