"""The pods that a change restarts, with reasons, and its effects without a restart."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidegate_contracts.eviction_process import SETTINGS_FILE
from tidegate_contracts.proxy_process import ACCESS_FILE, ROUTING_FILE

from policies.guardrails.objects import at, mapping, mappings, name_of, text
from stacks.definition.base import quantity_value
from stacks.problems import count_of, listed

from .compare import Identity, compare, field_changes, json_tree
from .permissions import definition_in, definitions
from .workloads import Pool, Serving, Tree, Workload, number, pool_of, serving, workloads

MODEL = "model"  # The kind of notices about a model.
MOST_CAUSES = 3
MOST_MODELS = 6
_RECUT = "NODES ARE RE-CUT FIRST, which ends every pod on their GPUs. Pods wait until the new slices exist"


@dataclass(frozen=True)
class Restart:
    """A workload whose pods all restart."""

    kind: str
    name: str
    role: str
    pods: str  # Their number, in words.
    replaced: bool  # Whether the object is re-created, so that all its pods end at the same time.
    because: tuple[str, ...]  # Fields of the pod template that changed, or the immutable ones.
    models: tuple[str, ...]  # Models that it serves before and after.

    def __str__(self) -> str:
        at_once = ", ALL AT ONCE: the object is deleted and created again" if self.replaced else ""
        models = f"; models: {listed(self.models, MOST_MODELS)}" if self.models else ""
        return f"{self.pods}{at_once}, because of {listed(self.because, MOST_CAUSES)}{models}"


def restarts(before: Sequence[Tree], after: Sequence[Tree]) -> list[Restart]:
    """Return the workloads whose pods restart between two states of a stack."""
    old, was, will = workloads(before), serving(before), serving(after)
    found = []
    for key, new in workloads(after).items():
        if key not in old:
            continue
        changes = compare([dict(old[key].item)], [dict(new.item)])
        immutable = tuple(field for change in changes for field in change.immutable)
        if causes := immutable or template_changes(old[key], new):
            pool = new.pool or ("", "")  # The proxy serves no model itself.
            models = tuple(name for name in will.models.get(pool, ()) if name in was.models.get(pool, ()))
            found.append(Restart(new.kind, new.name, new.role, new.pods, bool(immutable), causes, models))
    return found


def template_changes(old: Workload, new: Workload) -> tuple[str, ...]:
    """Return the changed fields of the pod template that force new pods."""
    fields = field_changes({"template": _in_one_form(old.template)}, {"template": _in_one_form(new.template)})
    return tuple(dict.fromkeys(field.place.removeprefix("template.").removeprefix("spec.") for field in fields))


def _in_one_form(tree: Any, key: str = "") -> Any:
    """Return a template with quantities as numbers, because the API server treats `1000m` and `1` as equal."""
    if isinstance(tree, Mapping):
        return {
            name: _in_one_form(item, "sizeLimit" if key in ("limits", "requests") else name)
            for name, item in tree.items()
        }
    if isinstance(tree, list):
        return [_in_one_form(item) for item in tree]
    if key == "sizeLimit":
        with suppress(ValueError, ArithmeticError):
            return str(quantity_value(str(tree)).normalize())
    return tree


def restarting(restarts: Iterable[Restart]) -> str:
    """Return `2 pools restart, 1 proxy restarts`, or an empty text."""
    counts = Counter(restart.role for restart in restarts)
    many = {"proxy": "proxies", "pool": "pools", "deployment": "deployments", "statefulset": "statefulsets"}
    words = {role: f"{role} restarts" if count == 1 else f"{many[role]} restart" for role, count in counts.items()}
    return ", ".join(f"{counts[role]} {words[role]}" for role in sorted(words))


@dataclass(frozen=True)
class Notice:
    """An effect of a change other than a restart."""

    kind: str
    name: str
    what: str
    grave: bool = False  # Whether it is as bad as a deletion.


def notices(before: Sequence[Tree], after: Sequence[Tree]) -> list[Notice]:
    """Return the effects other than restarts."""
    was, will = serving(before), serving(after)
    return [
        *_unread(before, after),
        *_cuts(before, after),
        *_pods(workloads(before), workloads(after), will),
        *_called(was, will),
        *_models(was, will),
        *_repositories(*definitions(before, after), will),
        *_oversubscribed(before, after),
        *_renamed(before, after),
    ]


def _unread(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[Notice]:
    """Yield tables that cannot be read, so that their effect on permissions is unknown."""
    for when, objects in (("before", before), ("after", after)):
        for item in objects:
            for file in (ROUTING_FILE, ACCESS_FILE):
                if (content := text(item, "data", file)) and json_tree(content) is None:
                    what = f"{file} of {when} the change CANNOT BE READ: the effect on callers is unknown"
                    yield Notice("ConfigMap", name_of(item), what, grave=True)


def _repositories(was: Tree, now: Tree, will: Serving) -> Iterator[Notice]:
    for name, server in mapping(now, "servers").items():
        old, new = (
            _location(mapping(tree, "servers", name, "repository")) for tree in (was, {"servers": {name: server}})
        )
        if old and old != new:
            count = len({model for pool, models in will.models.items() if pool[0] == name for model in models})
            copy = f"copy the files first, or loads of {count_of(count, 'model')} fail"
            what = f"READS ITS MODELS FROM {new}, no longer from {old}: {copy}"
            yield Notice("server", name, what, grave=True)


def _location(repository: Tree) -> str:
    path = text(repository, "path")
    return text(repository, "url") or "/".join(filter(None, (text(repository, "dataset"), path.strip("/"))))


def _oversubscribed(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[Notice]:
    """Yield pools whose models together need more memory than their replicas have, if the change makes that worse."""
    was = _memory(before)
    for pool, (need, have) in _memory(after).items():
        need_before, have_before = was.get(pool, (0, 1))
        if need > have and pool in was and need * have_before > need_before * have:
            texts = [f"{one / 1e9:.1f} of {other / 1e9:.1f} GB" for one, other in ((need, have), was[pool])]
            what = f"its models together need {texts[0]} of its memory, so they take turns. Before: {texts[1]}"
            yield Notice("pool", "/".join(pool), what, grave=need_before <= have_before)


def _memory(objects: Sequence[Tree]) -> dict[Pool, tuple[int, int]]:
    """Return for each on-demand pool the bytes that its models need, as far as declared, and those of its replicas."""
    replicas = {one.pool: max(1, one.least) for one in workloads(objects).values() if one.pool}
    found = {}
    for item in objects:
        settings, pool = json_tree(at(item, "data", SETTINGS_FILE)), pool_of(item)
        if settings and pool in replicas:
            need = sum(number(model, "footprintBytes", default=0) for model in mappings(settings, "models"))
            found[pool] = need, number(settings, "capacityBytes", default=0) * replicas[pool]
    return found


def _renamed(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[Notice]:
    """Yield new servers, pools and datasets that could be renamed ones, so that `formerly` would keep their objects."""
    old, new = _names(before), _names(after)
    for (kind, owner), was in old.items():
        now = new.get((kind, owner), [])
        if gone := [name for name in was if name not in now]:
            what = f"is new, and {', '.join(gone)} is gone. To keep its objects, set formerly: [{gone[0]}] in it"
            yield from (Notice(kind, name, what) for name in now if name not in was)


def _names(objects: Sequence[Tree]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for server, pool in sorted({one.pool for one in workloads(objects).values() if one.pool}):
        found.setdefault(("server", ""), []).append(server)
        found.setdefault(("pool", server), []).append(pool)
    found["dataset", ""] = [name_of(item) for item in objects if item.get("kind") == "PersistentVolumeClaim"]
    return {key: [*dict.fromkeys(names)] for key, names in found.items()}


def _cuts(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[Notice]:
    """Yield GPUs that must be cut again, by the inventory of the data plane."""
    was, now = ([*mappings(definition_in(objects), "dataPlane", "gpus")] for objects in (before, after))
    for product in dict.fromkeys(text(group, "product") for group in now):
        left = [_layout(group) for group in was if text(group, "product") == product]
        come = []
        for index, group in enumerate(now):
            if text(group, "product") == product:
                if (layout := _layout(group)) in left:
                    left.remove(layout)
                else:
                    come.append((f"gpus[{index}] of the data plane", number(group, "nodes", default=0), layout))
        for old, (where, nodes, layout) in zip(left, come, strict=False):  # only new or only removed groups cut nothing
            where += f" ({nodes} nodes)" if nodes else ""
            yield Notice("nodes with", product, f"{old} → {layout} in {where}: {_RECUT}", grave=True)


def _layout(group: Tree) -> str:
    """Return how a group's GPUs are cut: all GPUs of a node the same way, or some of them in each way."""
    layouts = [*mappings(group, "mig")] or [mapping(group, "mig")]
    ways = []
    for layout in layouts:
        slices = ", ".join(f"{count} × {profile}" for profile, count in mapping(layout, "slices").items()) or "not cut"
        strategy = f" ({layout['strategy']})" if text(layout, "strategy") else ""
        ways.append(f"{slices}{strategy}" + (f" on {layout['gpus']} GPUs" if layout.get("gpus") else ""))
    return " and ".join(ways)


def _pods(old: Mapping[Identity, Workload], new: Mapping[Identity, Workload], will: Serving) -> Iterator[Notice]:
    for before, workload in ((old[key], new[key]) for key in new if key in old):
        if (before.least, before.most) != (workload.least, workload.most):
            what = "the number alone restarts no pod"
            if grave := workload.most == 0:
                what = "NOTHING SERVES ANY LONGER"
            elif workload.most < before.most:
                what = "the last ones end" + (", and their models must be loaded again" if workload.pool else "")
            if workload.least == 0 < before.least and workload.most:
                what, grave = f"{what}. WITHOUT CALLS NO POD RUNS, and the first callers wait for one", True
            if workload.least == 1 < before.least:
                what, grave = f"{what}. CALLS FAIL while the only pod restarts or its node fails", True
            yield Notice(workload.kind, workload.name, f"{before.pods} → {workload.pods}: {what}", grave)
        if workload.pool and (bound := will.bound.get(workload.pool)):
            yield from _bound(before, workload, bound)


def _bound(before: Workload, workload: Workload, bound: str) -> Iterator[Notice]:
    """Yield that model files may not load with another image of the server."""
    was, now = ({text(one, "name"): text(one, "image") for one in each.containers} for each in (before, workload))
    for name, image in now.items():
        if name in ("triton", "engine") and was.get(name, image) != image:
            images = f"image {was[name].rpartition('/')[2]} → {image.rpartition('/')[2]}"
            what = f"{images}: {bound} load only with the release that they were built for. Build them again first"
            yield Notice(workload.kind, workload.name, what)


def _called(was: Serving, will: Serving) -> Iterator[Notice]:
    """Yield servers with a new name for callers. Requests with the old name fail."""
    for old in sorted({*was.called.values()} - {*will.called.values()}):
        if now := {will.called[pool] for pool, name in was.called.items() if name == old and pool in will.called}:
            what = f"IS CALLED {', '.join(sorted(now))} FROM NOW ON: requests for {old} are refused"
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
            yield Notice(MODEL, name, f"calls go {now} (before: {was.traffic.get(name)})")
    for pool in sorted(was.started_with.keys() & will.started_with.keys()):
        if new_versions := ", ".join(sorted(will.started_with[pool] - was.started_with[pool])):
            what = f"CALLS OF {new_versions} FAIL until a replica has started with it"
            yield Notice("pool", "/".join(pool), what, grave=True)
