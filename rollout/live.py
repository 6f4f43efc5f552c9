"""The live objects of a stack, and those that it would have after an `up`, as the API server computes them.

Every rendered object is applied as a dry run. So defaults are not reported as differences, and the effect of admission
rules is seen. Reads only the rendered objects and those with a stack's labels.
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
"""Annotations of engines and controllers. They are not part of the declaration."""
_BOOK_LABELS = ("app.kubernetes.io/managed-by", "kubernetes.io/metadata.name")
PREVIEW = "tidegate-preview"  # Field manager of dry runs, for objects that were never applied.

_REPLACED = re.compile(r"is invalid: spec[^\n]*?(Forbidden: updates to|immutable)")
_AT_ONCE = 4


@dataclass(frozen=True)
class Live:
    """A stack in its cluster."""

    before: list[KubernetesObject]
    after: list[KubernetesObject]  # After an `up`.
    refused: tuple[str, ...] = ()  # Sentences about objects that the API server would refuse.
    kept: tuple[str, ...] = ()  # Volumes and claims that are no longer described but stay: `PersistentVolume prod-old`.


def live_objects(context: str, rendering: Sequence[Rendered]) -> dict[str, Live]:
    """Return the live and the expected objects of each stack. Raise CommandError if the cluster cannot be queried."""
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
    """The live objects of a stack."""

    declared: list[KubernetesObject]
    gone: list[KubernetesObject]  # No longer rendered. Without `kept`.
    kept: list[KubernetesObject]  # No longer rendered, but they hold data.


def state_of_stack(kube: Kubectl, rendered: Sequence[KubernetesObject], known: Kinds | None = None) -> LiveState:
    """Return every live object of a stack, whether it is still rendered or not."""
    known = known or kube.kinds()
    namespace = next(item for item in rendered if item["kind"] == "Namespace")["metadata"]
    found = _labelled(kube, known, namespace["labels"][INSTANCE], "-A")
    versions = {identity(item): item["apiVersion"] for item in rendered}
    ours = {identity(item): item for item in found if item["apiVersion"] == versions.get(identity(item))}
    unseen = [item for item in rendered if identity(item) not in ours and (item["apiVersion"], item["kind"]) in known]
    declared = [*ours.values(), *kube.like(unseen)]  # such as objects that lost their labels
    strange = [item for item in found if identity(item) not in versions and namespace_of(item) == namespace["name"]]
    left = [item for item in strange if not _goes(item)]
    kept = [item for item in left if item["kind"] in KEPT]
    return LiveState(declared, [item for item in left if item not in kept], kept)


def require_there(kube: Kubectl, declared: Sequence[KubernetesObject]) -> None:
    """Raise CommandError if the cluster lacks one of these objects, or is deleting it."""
    there = {identity(item) for item in kube.like(declared) if "deletionTimestamp" not in item["metadata"]}
    if lost := [f"{item['kind']} {item['metadata']['name']}" for item in declared if identity(item) not in there]:
        raise CommandError(f"{kube.context} does not have {listed(lost, most=6)}. Run the same command again.")


def remaining_objects(kube: Kubectl, home: StackId) -> list[KubernetesObject]:
    """Return all live objects of an environment, whoever describes them, except those that hold data."""
    found = _labelled(kube, kube.kinds(), home.environment.made_as, "-n", home.namespace)
    return [item for item in found if item["kind"] not in KEPT and not _goes(item)]


def _labelled(kube: Kubectl, known: Kinds, environment: str, *where: str) -> list[KubernetesObject]:
    resources = {
        name for (version, kind), name in known.items() if kind in APPLY_ORDER and version.partition("/")[0] in _GROUPS
    }
    return kube.find(sorted(resources), *where, "-l", f"{PART_OF}=tidegate,{INSTANCE}={environment}")


def _goes(item: KubernetesObject) -> bool:
    """Whether an object disappears by itself: it is being deleted, or owned by another object, such as KEDA's."""
    return not {"ownerReferences", "deletionTimestamp"}.isdisjoint(item["metadata"])


def as_declared(kube: Kubectl, look: Callable[[], LiveState], rendered: Sequence[KubernetesObject]) -> bool:
    """Whether the live stack is as declared, so that an `up` would change nothing. While `look` runs, a dry run without
    removed fields runs in parallel."""
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
    """Return an object without the fields that the API server, controllers and engines add."""
    head = {name: value for name, value in item["metadata"].items() if name not in _SET_BY_SERVER}
    for field, dropped in (("annotations", _BOOK_KEEPING), ("labels", _BOOK_LABELS)):
        texts = head.pop(field, None) or {}
        if kept := {name: text for name, text in texts.items() if not name.startswith(dropped)}:
            head[field] = kept
    return {name: value for name, value in item.items() if name != "status"} | {"metadata": head}


def namespace_of(item: KubernetesObject) -> str:
    """Return the namespace of an object. A volume belongs to the namespace of its claim."""
    claim: dict[str, str] = item.get("spec", {}).get("claimRef") or {}
    meta = item["metadata"]
    return str(meta.get("namespace") or claim.get("namespace") or meta["name"])


_GROUPS = {
    "v1", "apps", "autoscaling", "cert-manager.io", "gateway.networking.k8s.io", "keda.sh", "monitoring.coreos.com",
    "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "security.istio.io",
}  # fmt: skip
"""API groups of the kinds that components declare."""


def _dry_run(
    kube: Kubectl, wanted: Sequence[KubernetesObject], live: Mapping[Identity, KubernetesObject]
) -> tuple[dict[Identity, KubernetesObject], list[str]]:
    spaces = {item["metadata"]["name"] for item in live.values() if item["kind"] == "Namespace"}
    by_manager: dict[str, list[KubernetesObject]] = defaultdict(list)
    lost: dict[Identity, list[managed_fields.Path]] = {}
    for declared in wanted:
        if declared["metadata"].get("namespace", "") not in {"", *spaces}:
            continue  # a dry run in a namespace that does not exist yet fails
        old = live.get(identity(declared))
        item = with_scale(declared, old)
        owner = managed_fields.owner(old) if old else None
        lost[identity(item)] = managed_fields.left_over(old, item) if old else []
        # Most objects lose no field, so one run serves them all, even if each has another manager, as Pulumi's have.
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
        # Replaces one that cannot be changed in place.
        recreated, had = fresh.get(name, by_key[name]), live[name].get("spec", {})
        undeclared = {"clusterIP", "clusterIPs", "replicas"} - by_key[name].get("spec", {}).keys()
        kept = {field: had[field] for field in undeclared if field in had}
        after[name] = {**recreated, "spec": {**recreated["spec"], **kept}} if kept else recreated
    return after, refused


def _held(result: KubernetesObject, lost: Sequence[managed_fields.Path]) -> list[managed_fields.Path]:
    """Return those of the lost fields that an apply alone does not remove. A person set them, or an engine that created
    the object without an apply, and so owns all its defaults."""
    managers = managed_fields.managers(result)
    holding = [one for one in managers if one.is_hand or (one.is_engine and one.operation == "Update")]
    return [path for path in lost if any(path in managed_fields.paths(one.fields) for one in holding)]


def created_from(kube: Kubectl, wanted: Sequence[KubernetesObject]) -> dict[Identity, KubernetesObject]:
    """Return each object as the API server would create it now, with every default. Dry runs use another name."""
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
    """Return the result of a dry run. If it fails for all objects at once, each is tried alone."""
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
    """Return an object with the live replicas if it declares none, because an autoscaler sets them."""
    if item["kind"] not in ("Deployment", "StatefulSet") or "replicas" in item["spec"] or live is None:
        return item
    return {**item, "spec": {**item["spec"], "replicas": live["spec"]["replicas"]}}
