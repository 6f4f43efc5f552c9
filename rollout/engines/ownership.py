"""The engine that brought a stack up, as its objects show, before another engine changes them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from policies.guardrails.objects import mapping
from stacks.command import CommandError, for_stack, in_shell
from stacks.problems import counted, escaped, listed
from stacks.stack import StackId

from .. import managed_fields
from ..changes.permissions import definition_in
from ..kubectl import BEING_DELETED, Kubectl, KubernetesObject
from ..live import INSTANCE, PART_OF, remaining_objects

HELM_NAME = "meta.helm.sh/release-name"
HELM_NAMESPACE = "meta.helm.sh/release-namespace"
Release = tuple[str, str]  # Name and namespace of a Helm release.
_LONGEST_NAME = 53


def release_of(stack: StackId) -> Release:
    """Return a stack's release, of the stack's name. If that is too long for Helm, its beginning and a hash."""
    if len(stack.name) <= _LONGEST_NAME:
        return stack.name, stack.namespace
    digest = hashlib.sha256(stack.name.encode()).hexdigest()[:8]
    return f"{stack.name[: _LONGEST_NAME - 9].rstrip('-')}-{digest}", stack.namespace


def releases_of(stack: StackId) -> tuple[Release, ...]:
    """Return a stack's release, and its possible releases under former names."""
    return tuple(release_of(each) for each in (stack, *stack.former()))


def helm_marks(stack: StackId) -> dict[str, dict[str, str]]:
    """Return the labels and annotations that Helm writes on the objects of a stack's release."""
    name, namespace = release_of(stack)
    annotations = {HELM_NAME: name, HELM_NAMESPACE: namespace}
    return {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": annotations}


def helm_release(item: KubernetesObject) -> Release | None:
    """Return the Helm release of an object."""
    annotations = item["metadata"].get("annotations") or {}
    return (annotations[HELM_NAME], annotations.get(HELM_NAMESPACE, "")) if HELM_NAME in annotations else None


def records(kube: Kubectl, stack: StackId, *which: str) -> list[KubernetesObject]:
    """Return Helm's records of a stack's release, oldest first. `which` are further label selectors."""
    selector = ",".join(("owner=helm", f"name={release_of(stack)[0]}", *which))
    theirs = ("-l", selector, "--field-selector", "type=helm.sh/release.v1")
    found = kube.find(["secrets"], "-n", stack.namespace, *theirs)
    return sorted(found, key=lambda item: int(item["metadata"]["labels"]["version"]))


def delete_release_records(kube: Kubectl, stacks: Iterable[StackId]) -> None:
    """Delete Helm's records of these stacks. Their objects stay, but Helm no longer knows the releases."""
    for stack in stacks:
        for record in records(kube, stack):
            kube.run("delete", "secret", record["metadata"]["name"], "-n", stack.namespace)


@dataclass(frozen=True)
class Owner:
    """The owner of a namespace: an engine, or something else."""

    engine: str  # `helm`, `pulumi`, `kubectl`, or empty for none of these.
    release: Release | None = None


UNOWNED: Final = Owner("")
_IN_USE: Final = (
    "pods", "deployments", "statefulsets", "daemonsets", "jobs", "cronjobs", "services", "persistentvolumeclaims",
)  # fmt: skip
_MAKES_PODS: Final = (
    "AutoscalingRunnerSet", "CronWorkflow", "EphemeralRunnerSet", "Rollout", "RunnerDeployment", "RunnerSet",
    "ScaledJob",
)  # fmt: skip
"""Custom resources of KEDA and CI runners that create pods later: their namespace can have none now."""


def owner_of(kube: Kubectl, stack: StackId) -> Owner | None:
    """Return the owner of a stack's namespace. None if the namespace does not exist."""
    namespace = kube.get("namespace", stack.namespace)
    if namespace is None:
        return None
    if "deletionTimestamp" in namespace["metadata"]:
        conditions = namespace.get("status", {}).get("conditions", ())
        going = ("NamespaceContentRemaining", "NamespaceFinalizersRemaining")
        why = [one["message"] for one in conditions if one.get("status") == "True" and one.get("type") in going]
        kubectl = f"kubectl --context {in_shell(kube.context)}"
        reason = f": {escaped(why[-1])}" if why else ""
        raise CommandError(BEING_DELETED.format(namespace=stack.namespace, kubectl=kubectl, why=reason))
    return owner_in(kube, stack, namespace)


def owner_in(kube: Kubectl, stack: StackId, namespace: KubernetesObject) -> Owner:
    """Return the owner of a stack's namespace, given that namespace."""
    release = helm_release(namespace)
    if release is None:  # another engine may have been stopped while it adopted the stack
        release = next((release_of(each) for each in (stack, *stack.former()) if records(kube, each)), None)
    if release is not None:
        return Owner("helm", release)
    if not _is_labelled(namespace, stack):
        return UNOWNED
    manager = managed_fields.owner(namespace)
    return Owner("pulumi" if manager is not None and manager.name.startswith("pulumi") else "kubectl")


def ensure_owner(kube: Kubectl, stack: StackId, engine: str, *, adopt: bool = False) -> Owner | None:
    """Return the owner of a stack. Raise CommandError if it is another engine and `adopt` is false."""
    owner = owner_of(kube, stack)
    if owner is None or adopt or (owner.engine == engine and owner.release in (None, *releases_of(stack))):
        return owner
    name, of = map(escaped, owner.release or ("", ""))
    whose = {
        "helm": f"{stack.name} was applied with Helm, as release {name} in namespace {of}.",
        "pulumi": f"{stack.name} was applied with Pulumi.",
        "kubectl": f"{stack.name} was applied with kubectl, or by a GitOps controller.",
        "": f"The namespace {stack.namespace} already exists, and Tidegate did not create it. It is in use, or "
        "you cannot list its objects.",
    }[owner.engine]
    raise CommandError(f"{whose}\n    {_how_to_move(owner, stack, engine, kube.context)}")


def owner_for_up(kube: Kubectl, stack: StackId, engine: str, *, adopt: bool = False) -> Owner | None:
    """Return the owner, as `ensure_owner` does, of a stack that is to be applied. A namespace that someone else made
    needs no `adopt` if it has only Secrets, ConfigMaps and the like: people make it for them."""
    owner = owner_of(kube, stack)
    if owner == UNOWNED and not adopt and _is_empty(kube, stack):
        return owner
    return ensure_owner(kube, stack, engine, adopt=adopt)


def _is_empty(kube: Kubectl, stack: StackId) -> bool:
    namespace = kube.get("namespace", stack.namespace) or {}
    if mapping(namespace, "metadata", "labels").get(PART_OF) == "tidegate":
        return False  # another environment's: its volumes stay after `down`
    try:
        custom = [resource for (_, kind), resource in kube.kinds().items() if kind in _MAKES_PODS]
        return not kube.find([*_IN_USE, *custom], "-n", stack.namespace)
    except CommandError:  # no permission to list all of them
        return False


def require_ours(objects: Sequence[KubernetesObject], stack: StackId, context: str, *, adopt: bool) -> None:
    """Raise CommandError for objects that exist but are not the release's, unless they are to be adopted."""
    foreign = [item for item in objects if not _is_labelled(item, stack) and item["kind"] != "Namespace"]
    foreign = foreign or [item for item in objects if helm_release(item) not in (None, *releases_of(stack))]
    if not foreign and (adopt or all(helm_release(item) or not _is_labelled(item, stack) for item in objects)):
        return  # no --adopt is needed for a release of the stack's former name, or for an empty namespace
    shown = listed((f"{item['kind']} {item['metadata']['name']}" for item in foreign or objects), most=6)
    if foreign:
        what = f"needs objects that exist in {context} but belong to someone else: {shown}"
        do = "Nothing was changed. Rename or delete them, or set another namespace in the definition."
    else:
        what = f"has objects in {context} that are not Helm's: {shown}"
        do = _how_to_move(Owner("kubectl"), stack, "helm", context)
    raise CommandError(f"{stack.name} {what}.\n    {do}")


def owner_in_other_namespace(kube: Kubectl, stack: StackId) -> str:
    """Return a sentence about objects of a stack of this name in another namespace, or an empty text. Raises
    CommandError if it is this very stack. Without a `platform`, it may be another definition's."""
    plane = stack.data_plane
    for namespace in kube.find(["namespaces"], "-l", f"{PART_OF}=tidegate,{INSTANCE}={stack.environment.made_as}"):
        recorded, was = mapping(definition_in([namespace]), "dataPlane"), namespace["metadata"]["name"]
        if was == stack.namespace or (recorded.get("name"), recorded.get("platform")) != (plane.name, plane.platform):
            continue
        if left := left_in(kube, stack, was):
            if plane.platform is not None:
                raise CommandError(refused_move(kube, stack, was, left))
            return f"{stays(kube, stack, was, left)}\n  If they belong to another definition, set `platform` in both"
    return ""


def left_in(kube: Kubectl, stack: StackId, namespace: str) -> list[KubernetesObject]:
    """Return the objects of a stack in another namespace, except those that hold data."""
    environment = stack.environment.model_copy(update={"namespace": namespace})
    return remaining_objects(kube, StackId(environment, stack.data_plane))


def refused_move(kube: Kubectl, stack: StackId, was: str, left: Sequence[KubernetesObject]) -> str:
    """Return why a running stack cannot change its namespace, and what to do."""
    down = for_stack("down", stack, kube.context)
    return (
        f"{stack.name} has {counted(left, 'object')} in namespace {was}, but the definition sets {stack.namespace}:"
        " a running stack cannot move to another namespace. Nothing was changed.\n"
        f"    Set the namespace back to {was}. To move the stack, run `{down}` first, and then set the new namespace."
        " Volumes and claims stay where they are."
    )


def stays(kube: Kubectl, stack: StackId, was: str, left: Sequence[KubernetesObject]) -> str:
    """Return a note about the objects of a stack in another namespace."""
    kubectl = f"kubectl --context {in_shell(kube.context)}"
    words = f"{stack.name} also has {counted(left, 'object')} in namespace {was}. They stay. To list them:"
    return f"{words} {kubectl} get all -n {was}"


def _is_labelled(item: KubernetesObject, stack: StackId) -> bool:
    marks = {PART_OF: "tidegate", INSTANCE: stack.environment.made_as}
    return marks.items() <= (item["metadata"].get("labels") or {}).items()


def _how_to_move(owner: Owner, stack: StackId, engine: str, context: str) -> str:
    goal = for_stack("up", stack, context, engine=engine, adopt=True)
    if owner.release not in (None, *releases_of(stack)):
        former = "If it is the stack's former name, add that under formerly of its data plane or environment"
        return f"Nothing was changed. {former}. Otherwise uninstall that release first. Its volumes stay."
    if not owner.engine:
        return f"Nothing was changed. If this stack should use it, adopt it: {goal}"
    can = "You can"
    if owner.engine in ("helm", "pulumi"):
        can = f"Use the same engine ({for_stack('up', stack, context, engine=owner.engine)}), or"
    adopted = "The objects are adopted as they are, and no pod restarts. docs/helm.md lists what stays behind."
    return f"Nothing was changed. {can} move it: {goal}\n    {adopted}"
