"""Which engine has brought a stack up: found on the objects themselves, before another one touches them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from policies.guardrails.objects import mapping
from stacks.command import CommandError
from stacks.problems import counted, escaped, listed
from stacks.stack import StackId

from .. import managed_fields
from ..changes.permissions import definition_in
from ..kubectl import BEING_DELETED, Kubectl, KubernetesObject
from ..live import INSTANCE, PART_OF, remaining_objects
from ..terminal import in_shell, tidegate

HELM_NAME = "meta.helm.sh/release-name"
HELM_NAMESPACE = "meta.helm.sh/release-namespace"
Release = tuple[str, str]  # Name and namespace of a Helm release.
_LONGEST_NAME = 53


def release_of(stack: StackId) -> Release:
    """Return a stack's release: of its own name, or where that is too long for Helm, its begin and a hash."""
    if len(stack.name) <= _LONGEST_NAME:
        return stack.name, stack.namespace
    digest = hashlib.sha256(stack.name.encode()).hexdigest()[:8]
    return f"{stack.name[: _LONGEST_NAME - 9].rstrip('-')}-{digest}", stack.namespace


def releases_of(stack: StackId) -> tuple[Release, ...]:
    """Return a stack's release, and those that it may have had under its former names."""
    return tuple(release_of(each) for each in (stack, *stack.former()))


def helm_marks(stack: StackId) -> dict[str, dict[str, str]]:
    """Return what Helm writes on the objects of a stack's release."""
    name, namespace = release_of(stack)
    annotations = {HELM_NAME: name, HELM_NAMESPACE: namespace}
    return {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": annotations}


def helm_release(item: KubernetesObject) -> Release | None:
    """Return the Helm release that an object belongs to."""
    annotations = item["metadata"].get("annotations") or {}
    return (annotations[HELM_NAME], annotations.get(HELM_NAMESPACE, "")) if HELM_NAME in annotations else None


def records(kube: Kubectl, stack: StackId, *which: str) -> list[KubernetesObject]:
    """Return Helm's records of a stack's release, oldest first; `which` are further conditions on their labels."""
    selector = ",".join(("owner=helm", f"name={release_of(stack)[0]}", *which))
    theirs = ("-l", selector, "--field-selector", "type=helm.sh/release.v1")
    found = kube.find(["secrets"], "-n", stack.namespace, *theirs)
    return sorted(found, key=lambda item: int(item["metadata"]["labels"]["version"]))


def delete_release_records(kube: Kubectl, stacks: Iterable[StackId]) -> None:
    """Take Helm's records of these stacks away: their objects stay as they are, and nobody knows of the releases."""
    for stack in stacks:
        for record in records(kube, stack):
            kube.run("delete", "secret", record["metadata"]["name"], "-n", stack.namespace)


@dataclass(frozen=True)
class Owner:
    """The owner of a namespace: an engine, or none of ours."""

    engine: str  # `helm`, `pulumi`, `kubectl`, or empty for somebody who is none of ours.
    release: Release | None = None


def owner_of(kube: Kubectl, stack: StackId) -> Owner | None:
    """Return who has a stack's namespace; None where there is no such namespace."""
    namespace = kube.get("namespace", stack.namespace)
    if namespace is None:
        return None
    if "deletionTimestamp" in namespace["metadata"]:
        conditions = namespace.get("status", {}).get("conditions", ())
        going = ("NamespaceContentRemaining", "NamespaceFinalizersRemaining")
        why = [one["message"] for one in conditions if one.get("status") == "True" and one.get("type") in going]
        kubectl = f"kubectl --context {in_shell(kube.context)}"
        said = f": {escaped(why[-1])}" if why else ""
        raise CommandError(BEING_DELETED.format(namespace=stack.namespace, kubectl=kubectl, why=said))
    return owner_in(kube, stack, namespace)


def owner_in(kube: Kubectl, stack: StackId, namespace: KubernetesObject) -> Owner:
    """Return who has a stack's namespace, which has been read."""
    release = helm_release(namespace)
    if release is None:  # another engine began to adopt it, and was stopped
        release = next((release_of(each) for each in (stack, *stack.former()) if records(kube, each)), None)
    if release is not None:
        return Owner("helm", release)
    if not _is_labelled(namespace, stack):
        return Owner("")
    manager = managed_fields.owner(namespace)
    return Owner("pulumi" if manager is not None and manager.name.startswith("pulumi") else "kubectl")


def ensure_owner(kube: Kubectl, stack: StackId, engine: str, *, adopt: bool = False) -> Owner | None:
    """Return who has a stack; raise CommandError where that is another engine, and it is not to be adopted."""
    owner = owner_of(kube, stack)
    if owner is None or adopt or (owner.engine == engine and owner.release in (None, *releases_of(stack))):
        return owner
    name, of = map(escaped, owner.release or ("", ""))
    whose = {
        "helm": f"{stack.name} was brought up with Helm, as release {name} in namespace {of}.",
        "pulumi": f"{stack.name} was brought up with Pulumi.",
        "kubectl": f"{stack.name} was brought up with kubectl, or by a GitOps controller.",
        "": f"The namespace {stack.namespace} is there already, and was made by somebody else.",
    }[owner.engine]
    raise CommandError(f"{whose}\n    {_how_to_move(owner, stack, engine, kube.context)}")


def require_ours(objects: Sequence[KubernetesObject], stack: StackId, context: str, *, adopt: bool) -> None:
    """Raise CommandError for objects that exist and are not the release's, unless they are to be adopted."""
    foreign = [item for item in objects if not _is_labelled(item, stack) and item["kind"] != "Namespace"]
    foreign = foreign or [item for item in objects if helm_release(item) not in (None, *releases_of(stack))]
    if not foreign and (adopt or all(helm_release(item) for item in objects)):
        return  # without being told to be adopted, where a release of the stack's former name has all of them
    shown = listed((f"{item['kind']} {item['metadata']['name']}" for item in foreign or objects), most=6)
    if foreign:
        what = f"needs objects that exist in {context} and belong to somebody else: {shown}"
        do = "Nothing was changed. Rename or delete them, or name another namespace in the definition."
    else:
        what = f"has objects in {context} that are not Helm's: {shown}"
        do = _how_to_move(Owner("kubectl"), stack, "helm", context)
    raise CommandError(f"{stack.name} {what}.\n    {do}")


def owner_in_other_namespace(kube: Kubectl, stack: StackId) -> str:
    """Return what the cluster has of a stack of this name in another namespace, in words; else an empty text.

    Raises CommandError if it is this very stack. Without a `platform` it may be another definition's.
    """
    plane = stack.data_plane
    for namespace in kube.find(["namespaces"], "-l", f"{PART_OF}=tidegate,{INSTANCE}={stack.environment.made_as}"):
        said, was = mapping(definition_in([namespace]), "dataPlane"), namespace["metadata"]["name"]
        if was == stack.namespace or (said.get("name"), said.get("platform")) != (plane.name, plane.platform):
            continue
        if left := left_in(kube, stack, was):
            if plane.platform is not None:
                raise CommandError(refused_move(kube, stack, was, left))
            return f"{stays(kube, stack, was, left)}\n  If they are another definition's, set `platform` in both"
    return ""


def left_in(kube: Kubectl, stack: StackId, namespace: str) -> list[KubernetesObject]:
    """Return what a stack has in another namespace, without what is kept for its data."""
    environment = stack.environment.model_copy(update={"namespace": namespace})
    return remaining_objects(kube, StackId(environment, stack.data_plane))


def refused_move(kube: Kubectl, stack: StackId, was: str, left: Sequence[KubernetesObject]) -> str:
    """Return why a stack does not get another namespace while it runs, and what to do."""
    down = tidegate("down", cluster=kube.context, stack=stack.name)
    return (
        f"{stack.name} has {counted(left, 'object')} in namespace {was}, and the definition names {stack.namespace}:"
        " a stack cannot move to another namespace while it runs. Nothing was changed.\n"
        f"    Set the namespace back to {was}. To move the stack, run `{down}` with it, and then set the new one."
        " Volumes and claims stay where they are."
    )


def stays(kube: Kubectl, stack: StackId, was: str, left: Sequence[KubernetesObject]) -> str:
    """Return a note about what a stack also has in another namespace."""
    kubectl = f"kubectl --context {in_shell(kube.context)}"
    words = f"{stack.name} also has {counted(left, 'object')} in namespace {was}. They stay; to list them:"
    return f"{words} {kubectl} get all -n {was}"


def _is_labelled(item: KubernetesObject, stack: StackId) -> bool:
    marks = {PART_OF: "tidegate", INSTANCE: stack.environment.made_as}
    return marks.items() <= (item["metadata"].get("labels") or {}).items()


def _how_to_move(owner: Owner, stack: StackId, engine: str, context: str) -> str:
    goal = tidegate("up", cluster=context, stack=stack.name, engine=engine, adopt=True)
    if owner.release not in (None, *releases_of(stack)):
        former = "If that is what the stack was called before, say so with formerly, in its data plane or environment"
        return f"Nothing was changed. {former}, and it is moved. Else uninstall that release first; its volumes stay."
    if not owner.engine:
        return f"Nothing was changed. If it is meant for this stack, adopt it: {goal}"
    can = "You can"
    if owner.engine in ("helm", "pulumi"):
        can = f"Go on with the same one ({tidegate('up', cluster=context, stack=stack.name, engine=owner.engine)}), or"
    adopted = "The objects are adopted as they are, no pod restarts; docs/helm.md tells what that leaves behind."
    return f"Nothing was changed. {can} move it: {goal}\n    {adopted}"
