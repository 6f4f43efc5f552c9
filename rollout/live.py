"""What a cluster has of our stacks, and what it would have after an `up`: as the API server itself works it out.

Every rendered object is applied as a dry run, so that defaults are no difference, and what an admission rule refuses or
changes is seen. Only what is rendered, and what carries a stack's labels, is read.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from components.apply_order import APPLY_ORDER, apply_key
from stacks.command import CommandError
from stacks.problems import listed
from stacks.stack import StackId

from . import managed_fields
from .changes.compare import KEPT, Identity, compare, identity
from .kubectl import Kinds, Kubectl, KubernetesObject, as_list, explained, items
from .render import Rendered

PART_OF = "app.kubernetes.io/part-of"
INSTANCE = "app.kubernetes.io/instance"
_SET_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "managedFields")
_BOOK_KEEPING = (
    "meta.helm.sh/", "pulumi.com/", "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/", "pv.kubernetes.io/",
)  # fmt: skip
"""Annotations of engines and controllers: they say nothing about what is declared."""
_BOOK_LABELS = ("app.kubernetes.io/managed-by", "kubernetes.io/metadata.name")
PREVIEW = "tidegate-preview"  # Field manager of dry runs, for objects that were never applied.

_REPLACED = re.compile(r"is invalid: spec[^\n]*?(Forbidden: updates to|immutable)")
_AT_ONCE = 4


@dataclass(frozen=True)
class Live:
    """A stack in its cluster."""

    before: list[KubernetesObject]
    after: list[KubernetesObject]  # What it would have after an `up`.
    refused: tuple[str, ...] = ()  # What the API server would refuse, in words.
    kept: tuple[str, ...] = ()  # Volumes and claims no longer described that stay: `PersistentVolume prod-old`.


def live_objects(context: str, rendering: Sequence[Rendered]) -> dict[str, Live]:
    """Return each stack as its cluster has it, and as it would have it; raise CommandError when it cannot be asked."""
    kube = Kubectl(context)
    known = kube.kinds()
    return {stack.stack: _look(kube, known, stack.objects) for stack in rendering}


def _look(kube: Kubectl, known: Kinds, rendered: Sequence[KubernetesObject]) -> Live:
    unknown = sorted({(item["apiVersion"], item["kind"]) for item in rendered} - set(known))
    refused = [
        explained(f'no matches for kind "{kind}" in version "{version}"', kube.context) or f"no {kind}"
        for version, kind in unknown
    ]
    state = state_of_stack(kube, rendered, known)
    wanted = [item for item in rendered if (item["apiVersion"], item["kind"]) in known]
    after, more = _dry_run(kube, wanted, {identity(item): item for item in state.declared})
    result = {**{identity(item): item for item in rendered}, **after}
    return Live(
        sorted(map(clean, [*state.declared, *state.gone]), key=apply_key),
        sorted(map(clean, result.values()), key=apply_key),
        (*refused, *more),
        tuple(f"{item['kind']} {item['metadata']['name']}" for item in state.kept if item["kind"] != "Namespace"),
    )


@dataclass(frozen=True)
class LiveState:
    """What a cluster has of a stack, as it is."""

    declared: list[KubernetesObject]
    gone: list[KubernetesObject]  # What is no longer rendered, without what is kept for its data.
    kept: list[KubernetesObject]


def state_of_stack(kube: Kubectl, rendered: Sequence[KubernetesObject], known: Kinds | None = None) -> LiveState:
    """Return every object that a stack has in its cluster, whether it is still rendered or not."""
    known = known or kube.kinds()
    namespace = next(item for item in rendered if item["kind"] == "Namespace")["metadata"]
    found = _labelled(kube, known, namespace["labels"][INSTANCE], "-A")
    versions = {identity(item): item["apiVersion"] for item in rendered}
    ours = {identity(item): item for item in found if item["apiVersion"] == versions.get(identity(item))}
    unseen = [item for item in rendered if identity(item) not in ours and (item["apiVersion"], item["kind"]) in known]
    declared = [*ours.values(), *kube.like(unseen)]  # such as what has lost its labels
    strange = [item for item in found if identity(item) not in versions and namespace_of(item) == namespace["name"]]
    left = [item for item in strange if not _goes(item)]
    kept = [item for item in left if item["kind"] in KEPT]
    return LiveState(declared, [item for item in left if item not in kept], kept)


def require_there(kube: Kubectl, declared: Sequence[KubernetesObject]) -> None:
    """Raise CommandError if the cluster does not have one of these objects, or is deleting it."""
    there = {identity(item) for item in kube.like(declared) if "deletionTimestamp" not in item["metadata"]}
    if lost := [f"{item['kind']} {item['metadata']['name']}" for item in declared if identity(item) not in there]:
        raise CommandError(f"{kube.context} does not have {listed(lost, most=6)}. Run the same command again.")


def remaining_objects(kube: Kubectl, home: StackId) -> list[KubernetesObject]:
    """Return what the cluster has of an environment, but for what is kept for its data, whoever describes it."""
    found = _labelled(kube, kube.kinds(), home.environment.made_as, "-n", home.namespace)
    return [item for item in found if item["kind"] not in KEPT and not _goes(item)]


def _labelled(kube: Kubectl, known: Kinds, environment: str, *where: str) -> list[KubernetesObject]:
    resources = {
        name for (version, kind), name in known.items() if kind in APPLY_ORDER and version.partition("/")[0] in _GROUPS
    }
    return kube.find(sorted(resources), *where, "-l", f"{PART_OF}=tidegate,{INSTANCE}={environment}")


def _goes(item: KubernetesObject) -> bool:
    """Say whether an object goes by itself: what a controller made for one of ours, such as KEDA's, goes with it."""
    return not {"ownerReferences", "deletionTimestamp"}.isdisjoint(item["metadata"])


def as_declared(kube: Kubectl, look: Callable[[], LiveState], rendered: Sequence[KubernetesObject]) -> bool:
    """Say whether a stack stands as it is declared, so that an `up` would change nothing: as a preview sees it.

    While `look` is at work, it is asked what an apply gives where no field is to be taken away.
    """
    refused: list[str] = []
    with ThreadPoolExecutor(1) as beside:
        trying = beside.submit(_applied, kube, PREVIEW, rendered, refused)
        live = look()
    found = {identity(item): item for item in live.declared}
    if live.gone or found.keys() != {identity(item) for item in rendered}:
        return False
    after = {identity(item): item for item in trying.result()}
    if any(managed_fields.left_over(old, with_scale(item, old)) for item in rendered if (old := found[identity(item)])):
        after, refused = _dry_run(kube, rendered, found)
    return not refused and not compare(map(clean, found.values()), map(clean, after.values()))


def clean(item: KubernetesObject) -> KubernetesObject:
    """Return an object as it is declared: without what the API server, controllers and engines note on it."""
    head = {name: value for name, value in item["metadata"].items() if name not in _SET_BY_SERVER}
    for field, dropped in (("annotations", _BOOK_KEEPING), ("labels", _BOOK_LABELS)):
        texts = head.pop(field, None) or {}
        if kept := {name: text for name, text in texts.items() if not name.startswith(dropped)}:
            head[field] = kept
    return {name: value for name, value in item.items() if name != "status"} | {"metadata": head}


def namespace_of(item: KubernetesObject) -> str:
    """Return the namespace that an object belongs to; a volume belongs to that of its claim."""
    claim: dict[str, str] = item.get("spec", {}).get("claimRef") or {}
    meta = item["metadata"]
    return str(meta.get("namespace") or claim.get("namespace") or meta["name"])


_GROUPS = {
    "v1", "apps", "autoscaling", "cert-manager.io", "gateway.networking.k8s.io", "keda.sh", "monitoring.coreos.com",
    "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "security.istio.io",
}  # fmt: skip
"""API groups of what a component can declare."""


def _dry_run(
    kube: Kubectl, wanted: Sequence[KubernetesObject], live: Mapping[Identity, KubernetesObject]
) -> tuple[dict[Identity, KubernetesObject], list[str]]:
    spaces = {item["metadata"]["name"] for item in live.values() if item["kind"] == "Namespace"}
    by_manager: dict[str, list[KubernetesObject]] = defaultdict(list)
    lost: dict[Identity, list[managed_fields.Path]] = {}
    for declared in wanted:
        if declared["metadata"].get("namespace", "") not in {"", *spaces}:
            continue  # the API server can say nothing about objects in a namespace that is not there yet
        old = live.get(identity(declared))
        item = with_scale(declared, old)
        owner = managed_fields.owner(old) if old else None
        lost[identity(item)] = managed_fields.left_over(old, item) if old else []
        # Most objects lose no field, so one run does for them, even where each has a manager of its own, as Pulumi's.
        as_owner = owner is not None and owner.operation == "Apply" and lost[identity(item)]
        by_manager[owner.name if owner and as_owner else PREVIEW].append(item)
    refused: list[str] = []
    results = (_applied(kube, manager, objects, refused) for manager, objects in by_manager.items())
    after = {identity(result): result for found in results for result in found}
    by_key = {identity(item): item for item in wanted}
    settling = {name: held for name in lost if name in after and (held := _held(after[name], lost[name]))}
    replaced = [name for name in live if name not in after and name in by_key]
    fresh = created_from(kube, [by_key[name] for name in (*settling, *replaced)])
    for name, paths in settling.items():
        after[name] = managed_fields.resolve_conflicts(after[name], paths, fresh.get(name, live[name]))
    for name in replaced:
        # In the place of one that cannot be changed into it.
        anew, had = fresh.get(name, by_key[name]), live[name].get("spec", {})
        undeclared = {"clusterIP", "clusterIPs", "replicas"} - by_key[name].get("spec", {}).keys()
        kept = {field: had[field] for field in undeclared if field in had}
        after[name] = {**anew, "spec": {**anew["spec"], **kept}} if kept else anew
    return after, refused


def _held(result: KubernetesObject, lost: Sequence[managed_fields.Path]) -> list[managed_fields.Path]:
    """Return the fields among those to be lost that an apply alone does not take away.

    They are a person's, and those of an engine that made the object without an apply, and so owns all defaults.
    """
    managers = managed_fields.managers(result)
    holding = [one for one in managers if one.is_hand or (one.is_engine and one.operation == "Update")]
    return [path for path in lost if any(path in managed_fields.paths(one.fields) for one in holding)]


def created_from(kube: Kubectl, wanted: Sequence[KubernetesObject]) -> dict[Identity, KubernetesObject]:
    """Return what each of these objects would be if it were made now, with every default; under another name."""
    others = [_renamed(item, f"{item['metadata']['name'][:50].rstrip('-.')}-anew") for item in wanted]
    originals = {identity(other): item for other, item in zip(others, wanted, strict=True)}
    found = {}
    for made in _applied(kube, PREVIEW, others, []) if wanted else ():
        original = originals[identity(made)]
        found[identity(original)] = _renamed(made, original["metadata"]["name"])
    return found


def _renamed(item: KubernetesObject, name: str) -> KubernetesObject:
    return {**item, "metadata": {**item["metadata"], "name": name}}


def _applied(
    kube: Kubectl, manager: str, objects: Sequence[KubernetesObject], refused: list[str]
) -> list[KubernetesObject]:
    """Return what the API server makes of these objects, each on its own where it takes not all of them."""
    how = ("--server-side", "--dry-run=server", "--force-conflicts", "--show-managed-fields", "--output=json")
    command = ("apply", *how, f"--field-manager={manager}", "--filename=-")
    answer = kube.run(*command, stdin=as_list(objects), check=False)
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
