"""What a cluster has of our stacks, and what it would have after an `up`: as the API server itself works it out.

Every rendered object is applied as a dry run, so that defaults are no difference, and what an admission rule refuses or
changes is seen. Only what is rendered, and what carries a stack's labels, is read.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from components.evaluate import APPLY_ORDER, apply_key

from . import managed_fields
from .changes.compare import compare
from .kubectl import Kubectl, KubernetesObject, as_list, items
from .refusals import explained
from .render import Rendered

KEPT = ("Namespace", "PersistentVolume", "PersistentVolumeClaim")
"""Kinds that nothing here ever deletes: they hold data, or what holds data."""
PART_OF = "app.kubernetes.io/part-of"
INSTANCE = "app.kubernetes.io/instance"
Key = tuple[str, str, str]
_SET_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "managedFields")
_BOOK_KEEPING = (
    "meta.helm.sh/",
    "helm.sh/resource-policy",
    "pulumi.com/",
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/",
    "pv.kubernetes.io/",
)
"""Annotations of engines and controllers: they say nothing about what is declared."""
_BOOK_LABELS = ("app.kubernetes.io/managed-by", "kubernetes.io/metadata.name")
PREVIEW = "tidegate-preview"
"""Who a dry run says that it is, for objects that nobody has applied yet."""

_REPLACED = re.compile(r"is invalid: spec[^\n]*?(Forbidden: updates to|immutable)")
_AT_ONCE = 4


@dataclass(frozen=True)
class Live:
    """A stack in its cluster."""

    before: list[KubernetesObject]
    """What the cluster has of it."""
    after: list[KubernetesObject]
    """What it would have after an `up`."""
    refused: tuple[str, ...] = ()
    """What the API server would refuse, in words."""
    kept: tuple[str, ...] = ()
    """Volumes and claims that are no longer described, and stay: `PersistentVolume prod-old`."""


def live_objects(context: str, rendering: Sequence[Rendered]) -> dict[str, Live]:
    """Return each stack as its cluster has it, and as it would have it; raise CommandError when it cannot be asked."""
    kube = Kubectl(context)
    known = kube.kinds()
    return {stack.stack: _look(kube, known, stack.objects) for stack in rendering}


def _look(kube: Kubectl, known: Mapping[tuple[str, str], str], rendered: Sequence[KubernetesObject]) -> Live:
    wanted = [item for item in rendered if (item["apiVersion"], item["kind"]) in known]
    unknown = {(item["apiVersion"], item["kind"]) for item in rendered} - set(known)
    refused = [
        explained(f'no matches for kind "{kind}" in version "{version}"', kube.context) or f"no {kind}"
        for version, kind in sorted(unknown)
    ]
    live = {key(item): item for item in kube.like(wanted)}
    after, more = _dry_run(kube, wanted, live)
    gone, kept = _no_longer_rendered(kube, known, rendered)
    result = {**{key(item): item for item in rendered}, **after}
    return Live(
        sorted((clean(item) for item in [*live.values(), *gone]), key=apply_key),
        sorted((clean(item) for item in result.values()), key=apply_key),
        (*refused, *more),
        kept,
    )


@dataclass(frozen=True)
class LiveState:
    """What a cluster has of a stack, as it is."""

    declared: list[KubernetesObject]
    gone: list[KubernetesObject]
    """What is no longer rendered, without what is kept for its data."""
    marks: Mapping[str, str]
    """The labels that every object of the stack carries."""

    @property
    def everything(self) -> list[KubernetesObject]:
        """All that may be deleted when the stack is taken down: nothing that somebody else gave the name of one."""
        return [
            item
            for item in (*self.declared, *self.gone)
            if item["kind"] not in KEPT and self.marks.items() <= (item["metadata"].get("labels") or {}).items()
        ]


def of_stack(kube: Kubectl, rendered: Sequence[KubernetesObject]) -> LiveState:
    """Return every object that a stack has in its cluster, whether it is still rendered or not."""
    known = kube.kinds()
    with ThreadPoolExecutor(1) as pool:
        declared = pool.submit(kube.like, [item for item in rendered if (item["apiVersion"], item["kind"]) in known])
        gone, _ = _no_longer_rendered(kube, known, rendered)
        return LiveState(declared.result(), gone, _marks(rendered))


def as_declared(kube: Kubectl, live: LiveState, rendered: Sequence[KubernetesObject]) -> bool:
    """Say whether a stack stands as it is declared, so that an `up` would change nothing: as a preview sees it."""
    found = {key(item): item for item in live.declared}
    if live.gone or found.keys() != {key(item) for item in rendered}:
        return False
    after, refused = _dry_run(kube, rendered, found)
    changes = compare([clean(item) for item in found.values()], [clean(item) for item in after.values()])
    return not refused and not changes


def _marks(rendered: Sequence[KubernetesObject]) -> dict[str, str]:
    labels = next(item for item in rendered if item["kind"] == "Namespace")["metadata"]["labels"]
    return {label: labels[label] for label in (PART_OF, INSTANCE)}


def _no_longer_rendered(
    kube: Kubectl, known: Mapping[tuple[str, str], str], rendered: Sequence[KubernetesObject]
) -> tuple[list[KubernetesObject], tuple[str, ...]]:
    namespace = next(item for item in rendered if item["kind"] == "Namespace")
    selector = ",".join(f"{label}={value}" for label, value in _marks(rendered).items())
    resources = {
        name for (version, kind), name in known.items() if kind in APPLY_ORDER and version.partition("/")[0] in _GROUPS
    }
    found = kube.find(sorted(resources), "-A", "-l", selector)
    names = {key(item) for item in rendered}
    gone = [
        item
        for item in found
        if key(item) not in names
        and namespace_of(item) == namespace["metadata"]["name"]
        # What a controller made for one of ours, such as KEDA's autoscaler, goes with it.
        and not item["metadata"].get("ownerReferences")
        and "deletionTimestamp" not in item["metadata"]
    ]
    kept = [item for item in gone if item["kind"] in KEPT]
    return (
        [item for item in gone if item["kind"] not in KEPT],
        tuple(f"{item['kind']} {item['metadata']['name']}" for item in kept if item["kind"] != "Namespace"),
    )


def key(item: KubernetesObject) -> Key:
    """Return what identifies an object among those of a stack."""
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def clean(item: KubernetesObject) -> KubernetesObject:
    """Return an object as it is declared: without what the API server, controllers and engines note on it."""
    result = {name: value for name, value in item.items() if name != "status"}
    head = {name: value for name, value in item["metadata"].items() if name not in _SET_BY_SERVER}
    for field, dropped in (("annotations", _BOOK_KEEPING), ("labels", _BOOK_LABELS)):
        kept = {name: value for name, value in (head.pop(field, None) or {}).items() if not name.startswith(dropped)}
        if kept:
            head[field] = kept
    return {**result, "metadata": head}


def namespace_of(item: KubernetesObject) -> str:
    """Return the namespace that an object belongs to; a volume belongs to that of its claim."""
    claim: dict[str, str] = item.get("spec", {}).get("claimRef") or {}
    meta = item["metadata"]
    return str(meta.get("namespace") or claim.get("namespace") or meta["name"])


_GROUPS = {
    "v1",
    "apps",
    "autoscaling",
    "cert-manager.io",
    "gateway.networking.k8s.io",
    "keda.sh",
    "monitoring.coreos.com",
    "networking.k8s.io",
    "policy",
    "resource.k8s.io",
    "security.istio.io",
}
"""API groups of what a component can declare."""


def _dry_run(
    kube: Kubectl, wanted: Sequence[KubernetesObject], live: Mapping[Key, KubernetesObject]
) -> tuple[dict[Key, KubernetesObject], list[str]]:
    """Return what each object would be, and what would be refused."""
    spaces = {item["metadata"]["name"] for item in live.values() if item["kind"] == "Namespace"}
    by_manager: dict[str, list[KubernetesObject]] = defaultdict(list)
    lost: dict[Key, list[managed_fields.Path]] = {}
    for declared in wanted:
        if declared["metadata"].get("namespace", "") not in {"", *spaces}:
            continue  # the API server can say nothing about objects in a namespace that is not there yet
        old = live.get(key(declared))
        item = with_scale(declared, old)
        owner = managed_fields.owner(old) if old else None
        lost[key(item)] = managed_fields.left_over(old, item) if old else []
        # Most objects lose no field, so one run does for them, even where each has a manager of its own, as Pulumi's.
        as_owner = owner is not None and owner.operation == "Apply" and lost[key(item)]
        by_manager[owner.name if owner and as_owner else PREVIEW].append(item)
    after: dict[Key, KubernetesObject] = {}
    refused: list[str] = []
    for manager, objects in by_manager.items():
        for result in _applied(kube, manager, objects, refused):
            after[key(result)] = result
    by_key = {key(item): item for item in wanted}
    held = {name: _held(after[name], paths) for name, paths in lost.items() if name in after}
    settling = {name: paths for name, paths in held.items() if paths}
    replaced = [name for name in live if name not in after and name in by_key]
    fresh = as_made(kube, [by_key[name] for name in (*settling, *replaced)])
    for name, paths in settling.items():
        after[name] = managed_fields.settled(after[name], paths, fresh.get(name, live[name]))
    for name in replaced:
        after[name] = _in_place_of(live[name], by_key[name], fresh.get(name) or by_key[name])
    return after, refused


def _held(result: KubernetesObject, lost: Sequence[managed_fields.Path]) -> list[managed_fields.Path]:
    """Return the fields among those to be lost that an apply alone does not take away.

    They are those that a person set, and those of an engine that made the object otherwise than by an apply. Whoever
    does that owns all defaults too.
    """
    held = {
        path
        for manager in managed_fields.managers(result)
        if manager.is_hand or (manager.is_engine and manager.operation == "Update")
        for path in managed_fields.paths(manager.fields)
    }
    return [path for path in lost if path in held]


def as_made(kube: Kubectl, wanted: Sequence[KubernetesObject]) -> dict[Key, KubernetesObject]:
    """Return what each of these objects would be if it were made now, with every default; under another name."""
    if not wanted:
        return {}
    renamed = [{**item, "metadata": {**item["metadata"], "name": _other_name(item)}} for item in wanted]
    made = _applied(kube, PREVIEW, renamed, [])
    names = {key(other): item for other, item in zip(renamed, wanted, strict=True)}
    return {
        key(names[key(item)]): {**item, "metadata": {**item["metadata"], "name": names[key(item)]["metadata"]["name"]}}
        for item in made
    }


def _other_name(item: KubernetesObject) -> str:
    return f"{item['metadata']['name'][:50].rstrip('-.')}-anew"


def _applied(
    kube: Kubectl, manager: str, objects: Sequence[KubernetesObject], refused: list[str]
) -> list[KubernetesObject]:
    """Return what the API server makes of these objects, each on its own where it takes not all of them."""
    answer = kube.run(
        *("apply", "--server-side", "--dry-run=server", "--force-conflicts", f"--field-manager={manager}"),
        *("--show-managed-fields", "-f", "-", "-o", "json"),
        stdin=as_list(objects),
        check=False,
    )
    if answer.returncode == 0:
        return items(json.loads(answer.stdout))
    if len(objects) > 1:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            single = pool.map(lambda item: _applied(kube, manager, [item], refused), objects)
            return [result for results in single for result in results]
    if not _REPLACED.search(answer.stderr):
        refused.append(kube.why(answer.stderr, "apply"))
    return []


def with_scale(item: KubernetesObject, live: KubernetesObject | None) -> KubernetesObject:
    """Return an object with the replicas that the cluster has, where it says nothing about them: an autoscaler does."""
    if item["kind"] not in ("Deployment", "StatefulSet") or "replicas" in item["spec"] or live is None:
        return item
    return {**item, "spec": {**item["spec"], "replicas": live["spec"]["replicas"]}}


def _in_place_of(live: KubernetesObject, item: KubernetesObject, fresh: KubernetesObject) -> KubernetesObject:
    """Return what a fresh object would be in the place of one that cannot be changed into it."""
    kept = {
        field: live["spec"][field]
        for field in ("clusterIP", "clusterIPs", "replicas")
        if field in live.get("spec", {}) and field not in item["spec"]
    }
    return {**fresh, "spec": {**fresh["spec"], **kept}} if kept else fresh
