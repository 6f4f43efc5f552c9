"""Which pods a change starts anew, how and why, and what happens without a restart."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tidegate_contracts.eviction_process import SETTINGS_FILE
from tidegate_contracts.proxy_process import ACCESS_FILE, ROUTING_FILE

from .compare import MISSING, Identity, compare, field_changes, json_tree
from .permissions import definition_in, definitions
from .workloads import (
    Pool,
    Replacing,
    Serving,
    Tree,
    Workload,
    at,
    items,
    mapping,
    mig_profiles,
    number,
    pool_of,
    serving,
    staged,
    text,
    workloads,
)

MODEL = "model"  # What a notice about a model has for a kind.
MOST_CAUSES = 3
MOST_MODELS = 6

_RECUT = "NODES ARE RE-CUT FIRST, which ends every pod on their GPUs; pods wait until slices of the new kind are there"
_QUANTITY = re.compile(r"(?P<number>[0-9]*\.?[0-9]+)(?P<unit>m|[kMGTPE]|[KMGTPE]i)?")
_UNITS = {"m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DEFAULTS = {
    "defaultMode": 420,
    "dnsPolicy": "ClusterFirst",
    "failureThreshold": 3,
    "initialDelaySeconds": 0,
    "periodSeconds": 10,
    "protocol": "TCP",
    "schedulerName": "default-scheduler",
    "scheme": "HTTP",
    "successThreshold": 1,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "timeoutSeconds": 1,
}
"""What the API server writes into a pod template that leaves it out: no new pods come of saying it."""


@dataclass(frozen=True)
class Restart:
    """A workload whose pods are all started anew."""

    workload: Workload
    replaced: bool  # Whether the object is made anew: then all its pods go at once.
    causes: tuple[str, ...]  # Fields of the pod template that changed, or the immutable ones.
    models: tuple[str, ...]  # Models that it served before and serves after.

    @property
    def replacing(self) -> Replacing:
        """How the update goes, at the least number of pods."""
        return self.workload.replacing(self.workload.least)


def restarts(before: Sequence[Tree], after: Sequence[Tree]) -> list[Restart]:
    """Return the workloads whose pods start anew on the way from one state of a stack to another."""
    old, was, will = workloads(before), serving(before), serving(after)
    found = []
    for key, new in workloads(after).items():
        if key not in old:
            continue
        changes = compare([dict(old[key].item)], [dict(new.item)])
        immutable = tuple(reason for change in changes for reason in change.reasons)
        causes = immutable or template_changes(old[key], new)
        if not causes or (not immutable and new.replacing(new.most).by_hand):
            continue
        pool = new.pool or ("", "")  # of which no routing table tells
        models = tuple(name for name in will.models.get(pool, ()) if name in was.models.get(pool, ()))
        found.append(Restart(new, bool(immutable), causes, models))
    return found


def _new_versions(was: Serving, will: Serving, pool: Pool) -> tuple[str, ...]:
    """Return what a pool serves only after its replicas have started again."""
    return tuple(sorted(will.fixed.get(pool, set()) - was.fixed[pool])) if pool in was.fixed else ()


def template_changes(old: Workload, new: Workload) -> tuple[str, ...]:
    """Return the fields of the pod template whose change makes new pods."""
    fields = field_changes({"template": _as_kept(old.template)}, {"template": _as_kept(new.template)})
    return tuple(dict.fromkeys(field.place.removeprefix("template.").removeprefix("spec.") for field in fields))


def _as_kept(tree: Any, key: str = "") -> Any:
    """Return a template in which equal is what the API server keeps alike: `1000m` and `1`, a default and nothing."""
    if isinstance(tree, Mapping):
        return {
            name: _amount(item) if key in ("limits", "requests") or name == "sizeLimit" else _as_kept(item, name)
            for name, item in tree.items()
            if key in ("labels", "annotations", "nodeSelector")
            or item != (_pulled(tree) if name == "imagePullPolicy" else _DEFAULTS.get(name, MISSING))
        }
    return [_as_kept(item) for item in tree] if isinstance(tree, list) else tree


def _pulled(container: Tree) -> str:
    """Return when the image of a container is pulled where it does not say so."""
    image, _, digest = text(container, "image").rpartition("/")[2].partition("@")
    _, _, tag = image.partition(":")
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _amount(value: Any) -> Any:
    """Return a quantity as a text of one form: `1024Mi` is kept as `1Gi`, but not as `1073741824`."""
    found = _QUANTITY.fullmatch(str(value))
    if isinstance(value, bool) or found is None:
        return value
    unit = found["unit"] or ""
    if unit.endswith("i"):
        return f"{Decimal(found['number']) * 1024 ** (1 + 'KMGTPE'.index(unit[0])):f} bytes"
    return f"{Decimal(found['number']).scaleb(_UNITS.get(unit, 0)).normalize():f}"


# ---- without a restart: what running pods see of a change, and what they do not ----


@dataclass(frozen=True)
class Notice:
    """An effect of a change besides the restarts, of a workload that restarts or of another."""

    kind: str
    name: str
    what: str
    grave: bool = False  # Whether it is as bad as a deletion.


def notices(before: Sequence[Tree], after: Sequence[Tree], restarts: Iterable[Restart]) -> list[Notice]:
    """Return the effects besides the restarts; `restarts` are those of the same change."""
    old, new = workloads(before), workloads(after)
    was, will = serving(before), serving(after)
    rolled = {restart.workload.identity for restart in restarts}
    return [
        *_unread(before, after),
        *_cuts(before, after),
        *_pods(old, new, will),
        *_settings(before, after, [one for one in new.values() if one.identity not in rolled]),
        *_accounts(before, after, new.values()),
        *_called(was, will),
        *_models(was, will),
        *_repositories(*definitions(before, after), will),
        *_turns(before, after),
        *_renamed(before, after),
    ]


def _unread(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[Notice]:
    """Yield the tables that are there and cannot be read: nothing can be said about what they allow."""
    for when, objects in (("before", before), ("after", after)):
        for item in objects if any(mapping(item, "data") for item in objects) else ():
            for file in (ROUTING_FILE, ACCESS_FILE) if item.get("kind") == "ConfigMap" else ():
                if (content := text(item, "data", file)) and json_tree(content) is None:
                    what = f"{file} of {when} the change CANNOT BE READ: what callers gain or lose is not known"
                    yield Notice("ConfigMap", text(item, "metadata", "name"), what, grave=True)


def _repositories(was: Tree, now: Tree, will: Serving) -> Iterator[Notice]:
    """Yield the servers that read their models from elsewhere."""
    for name, server in mapping(now, "servers").items():
        old, new = (_place(mapping(tree, "servers", name, "repository")) for tree in (was, {"servers": {name: server}}))
        if old and old != new:
            count = len({model for pool, models in will.models.items() if pool[0] == name for model in models})
            what = (
                f"READS ITS MODELS FROM {new}, no longer from {old}: copy the files first, or its {count} models fail"
            )
            yield Notice("server", name, what, grave=True)


def _place(repository: Tree) -> str:
    path = text(repository, "path")
    return text(repository, "url") or "/".join(filter(None, (text(repository, "dataset"), path.strip("/"))))


def _turns(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[Notice]:
    """Yield the pools whose models need more memory together than their replicas have, if that becomes worse."""
    was = _memory(before)
    for pool, (need, have) in _memory(after).items():
        need_before, have_before = was.get(pool, (0, 1))
        if need > have and pool in was and need * have_before > need_before * have:
            what = f"its models need {_gb(need, have)}, and take turns (before: {_gb(need_before, have_before)})"
            yield Notice("pool", "/".join(pool), what, grave=need_before <= have_before)


def _gb(need: int, have: int) -> str:
    return f"{need / 1e9:.1f} GB of the {have / 1e9:.1f} GB in its replicas"


def _memory(objects: Sequence[Tree]) -> dict[Pool, tuple[int, int]]:
    """Return what the models of each on-demand pool need, as far as declared, and what its replicas have, in bytes."""
    replicas = {one.pool: max(1, one.least) for one in workloads(objects).values() if one.pool}
    found = {}
    for item in objects:
        settings, pool = json_tree(at(item, "data", SETTINGS_FILE)), pool_of(item)
        if settings and pool in replicas:
            need = sum(number(model, "footprintBytes", default=0) for model in items(settings, "models"))
            found[pool] = need, number(settings, "capacityBytes", default=0) * replicas[pool]
    return found


def _renamed(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[Notice]:
    """Yield what could be an old thing under a new name, which the definition would have to state."""
    (old, new) = (_names(objects) for objects in (before, after))
    for kind, was in old.items():
        now = new.get(kind, [])
        gone = [name for name in was if name not in now]
        for name in (name for name in now if name not in was) if gone else ():
            what = (
                f"is new, and {', '.join(gone)} is gone. If it is the same {kind[0]}, set formerly: [{gone[0]}] in it"
            )
            yield Notice(kind[0], name, f"{what}, so that its objects keep their names")


def _names(objects: Sequence[Tree]) -> dict[tuple[str, str], list[str]]:
    """Return the names of servers, of the pools of each server, and of datasets, as they were made."""
    found: dict[tuple[str, str], list[str]] = {}
    for pool in sorted({pool for item in objects if item.get("kind") == "StatefulSet" and (pool := pool_of(item))}):
        servers = found.setdefault(("server", ""), [])
        servers += [pool[0]] if pool[0] not in servers else []
        found.setdefault(("pool", pool[0]), []).append(pool[1])
    claims = (item for item in objects if item.get("kind") == "PersistentVolumeClaim")
    found["dataset", ""] = [text(item, "metadata", "name") for item in claims]
    return found


def _cuts(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[Notice]:
    """Yield which GPUs are to be cut anew: where the inventory says so, and where a pool asks for other slices."""
    was, now = ([*items(definition_in(objects), "dataPlane", "gpus")] for objects in (before, after))
    for product in dict.fromkeys(text(group, "product") for group in now):
        left = [_layout(group) for group in was if text(group, "product") == product]
        come = []
        for index, group in enumerate(now):
            if text(group, "product") == product:
                if (layout := _layout(group)) in left:
                    left.remove(layout)
                else:
                    come.append((f"gpus[{index}] of the data plane", number(group, "nodes", default=0), layout))
        for old, (where, nodes, layout) in zip(left, come, strict=False):  # groups that only come or go cut nothing
            where += f" ({nodes} nodes)" if nodes else ""
            yield Notice("nodes with", product, f"{old} → {layout} in {where}: {_RECUT}", grave=True)
    if now:
        return  # the inventory states how the nodes are cut, whichever slices a pool takes of them
    had = mig_profiles(before)
    for (kind, namespace, name), profiles in mig_profiles(after).items():
        if (other := had.get((kind, namespace, name))) and profiles and other != profiles:
            what = f"MIG {', '.join(sorted(other))} → {', '.join(sorted(profiles))}: {_RECUT}"
            yield Notice(kind, name, what, grave=True)


def _layout(group: Tree) -> str:
    """Return how the inventory cuts a group of nodes: all GPUs of a node alike, or some of them in each way."""
    layouts = [*items(group, "mig")] or [mapping(group, "mig")]
    ways = []
    for layout in layouts:
        slices = ", ".join(f"{count} × {profile}" for profile, count in mapping(layout, "slices").items()) or "not cut"
        strategy = f" ({layout['strategy']})" if text(layout, "strategy") else ""
        ways.append(f"{slices}{strategy}" + (f" on {layout['gpus']} GPUs" if layout.get("gpus") else ""))
    return " and ".join(ways)


def _bound(before: Workload, workload: Workload, bound: str) -> Iterator[Notice]:
    """Yield that files of models may not load with another image of the server."""
    was, now = ({text(one, "name"): text(one, "image") for one in each.containers} for each in (before, workload))
    for name, image in now.items():
        if name in ("triton", "engine") and was.get(name, image) != image:
            what = (
                f"image {was[name].rpartition('/')[2]} → {image.rpartition('/')[2]}: {bound} load only with the release"
            )
            yield Notice(workload.kind, workload.name, f"{what} that they were built for. Build them again first")


def _pods(old: Mapping[Identity, Workload], new: Mapping[Identity, Workload], will: Serving) -> Iterator[Notice]:
    for before, workload in ((old[key], new[key]) for key in new if key in old):
        if (before.least, before.most) != (workload.least, workload.most):
            what = "no running pod restarts"
            if grave := workload.most == 0:
                what = "NOTHING SERVES ANY LONGER"
            elif workload.most < before.most:
                what = "the last ones end" + (", and what they held in memory is cold" if workload.pool else "")
            if workload.least == 0 < before.least and workload.most:
                what, grave = f"{what}; WITHOUT CALLS NO POD RUNS, and the first callers wait for one", True
            if workload.least == 1 < before.least:
                what, grave = f"{what}; CALLS FAIL while the only pod restarts or its node fails", True
            yield Notice(workload.kind, workload.name, f"{before.pods} → {workload.pods}: {what}", grave)
        if (was := staged(before)) != (now := staged(workload)):
            then = "what was evicted is loaded from there" if now else "every load reads the repository"
            yield Notice(workload.kind, workload.name, f"stages models {was or 'nowhere'} → {now or 'nowhere'}: {then}")
        if workload.pool and (bound := will.bound.get(workload.pool)):
            yield from _bound(before, workload, bound)
        if workload.replacing(workload.most).by_hand and template_changes(before, workload):
            yield Notice(workload.kind, workload.name, "its pods stay as they are until somebody deletes them")


def _settings(before: Sequence[Tree], after: Sequence[Tree], running: Iterable[Workload]) -> Iterator[Notice]:
    for name, namespace in _changed("ConfigMap", before, after):
        ways = {one.name: _sees(one, name) for one in running if one.namespace == namespace}
        if follow := ", ".join(user for user, (follows, _) in ways.items() if follows):
            yield Notice("ConfigMap", name, f"running pods of {follow} read it again within minutes: no restart")
        if stale := ", ".join(user for user, (_, once) in ways.items() if once):
            yield Notice("ConfigMap", name, f"running pods of {stale} KEEP THE OLD VALUES until they restart")


def _accounts(before: Sequence[Tree], after: Sequence[Tree], new: Iterable[Workload]) -> Iterator[Notice]:
    users = {(text(one.pod, "serviceAccountName"), one.namespace) for one in new}
    for account in _changed("ServiceAccount", before, after):
        if account in users:
            yield Notice("ServiceAccount", account[0], "reaches only pods that start after the change")


def _called(was: Serving, will: Serving) -> Iterator[Notice]:
    """Yield the servers that callers know by another name; that of before is nobody's from then on."""
    for old in sorted({*was.called.values()} - {*will.called.values()}):
        if now := {will.called[pool] for pool, name in was.called.items() if name == old and pool in will.called}:
            what = f"IS CALLED {', '.join(sorted(now))} FROM NOW ON: requests that say {old} are refused"
            yield Notice("server", old, what, grave=True)


def _models(was: Serving, will: Serving) -> Iterator[Notice]:
    before, after = was.places(), will.places()
    for name, old in sorted(before.items()):
        if name not in after:
            yield Notice(MODEL, name, "IS NO LONGER SERVED", grave=True)
        elif set(old).isdisjoint(new := after[name]):
            on_demand = will.loading.get(new[0]) == "on-demand"
            how = "until its first request there" if on_demand else "until a replica there has loaded it"
            there, here = (", ".join(map("/".join, pools)) for pools in (old, new))
            yield Notice(MODEL, name, f"moves from {there} to {here}: cold {how}")
        if name in after and was.traffic.get(name) != (now := will.traffic.get(name)):
            yield Notice(MODEL, name, f"calls go {now}; before: {was.traffic.get(name)}")
    for pool in sorted(was.fixed.keys() & will.fixed.keys()):
        if versions := ", ".join(_new_versions(was, will, pool)):
            until = f"until a replica of {'/'.join(pool)} has started with it"
            yield Notice(
                "pool",
                "/".join(pool),
                f"CALLS FAIL of {versions}, {until}: replicas serve what they started with",
                grave=True,
            )


def _changed(kind: str, before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[tuple[str, str]]:

    def contents(objects: Sequence[Tree]) -> dict[tuple[str, str], Any]:
        found = {}
        for item in (item for item in objects if item.get("kind") == kind):
            content = {key: value for key, value in item.items() if key not in ("apiVersion", "metadata")}
            place = text(item, "metadata", "name"), text(item, "metadata", "namespace")
            found[place] = content, at(item, "metadata", "annotations")
        return found

    old = contents(before)
    yield from (place for place, content in contents(after).items() if place in old and old[place] != content)


def _sees(workload: Workload, config_map: str) -> tuple[bool, bool]:
    """Return (follows, reads once): whether pods re-read the ConfigMap, and whether any reads it only at start."""
    volumes = items(workload.pod, "volumes")
    names = {text(volume, "name") for volume in volumes if text(volume, "configMap", "name") == config_map}
    mounts = [mount for container in workload.containers for mount in items(container, "volumeMounts")]
    part = any(text(mount, "name") in names and mount.get("subPath") for mount in mounts)
    read = {text(source, "configMapRef", "name") for one in workload.containers for source in items(one, "envFrom")}
    key = ("valueFrom", "configMapKeyRef", "name")
    read |= {text(variable, *key) for one in workload.containers for variable in items(one, "env")}
    return bool(names) and not part, part or config_map in read


# ---- in words ----


def restarting(restarts: Iterable[Restart]) -> str:
    """Return `2 pools restart, 1 proxy restarts`, or an empty text."""
    counts = Counter(restart.workload.role for restart in restarts)
    many = {"proxy": "proxies", "pool": "pools", "deployment": "deployments", "statefulset": "statefulsets"}
    words = {role: f"{role} restarts" if count == 1 else f"{many[role]} restart" for role, count in counts.items()}
    return ", ".join(f"{counts[role]} {words[role]}" for role in sorted(words))


def how(restart: Restart) -> str:
    """Return in which way pods are renewed: `2 pods, one after another`."""
    workload, update = restart.workload, restart.replacing
    if workload.most == 0:
        return "no pods"
    if restart.replaced:
        return f"{workload.pods}, ALL AT ONCE: the object is deleted and made anew"
    kept = f", without the first {update.kept}" if update.kept else ""
    if workload.most == 1 and not update.unavailable:
        return f"{workload.pods}: the new one is ready before the old one goes"
    if workload.most == 1:
        return f"{workload.pods}{kept}: the old one ends first" if update.waits_for_end else workload.pods
    if update.surge and not update.unavailable:
        at_once = "one" if update.surge == 1 else str(update.surge)
        return f"{workload.pods}, {at_once} at a time, the new before the old goes"
    if update.unavailable >= workload.most:
        return f"{workload.pods}{kept}, all at once"
    at_once = "one after another" if update.unavailable == 1 else f"{update.unavailable} at a time"
    return f"{workload.pods}{kept}, {at_once}"


def models(restart: Restart) -> str:
    """Return which models its pods serve, before and after."""
    more = len(restart.models) - MOST_MODELS
    return ", ".join(restart.models[:MOST_MODELS]) + (f" and {more} more" if more > 0 else "")


def because(restart: Restart) -> str:
    """Return which fields are the reason."""
    more = len(restart.causes) - MOST_CAUSES
    return ", ".join(restart.causes[:MOST_CAUSES]) + (f" and {more} more" if more > 0 else "")
