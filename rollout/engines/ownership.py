"""Which engine has brought a stack up: found on the objects themselves, before another one touches them."""

from collections.abc import Sequence
from dataclasses import dataclass

from stacks.command import CommandError
from stacks.problems import escaped, listed
from stacks.stack import Stack

from .. import managed_fields
from ..handover import helm_release
from ..kubectl import Kubectl, KubernetesObject
from ..live import INSTANCE, PART_OF
from ..terminal import in_shell, make
from .helm_release import records, release_name

__all__ = ["Owner", "helm_release", "owner_of", "require", "require_ours"]


@dataclass(frozen=True)
class Owner:
    """Who has a namespace."""

    engine: str
    """`helm`, `pulumi`, `kubectl`, or empty for somebody who is none of ours."""
    release: tuple[str, str] | None = None


def owner_of(kube: Kubectl, stack: Stack) -> Owner | None:
    """Return who has a stack's namespace; None where there is no such namespace."""
    namespace = kube.get("namespace", stack.namespace)
    if namespace is None:
        return None
    if "deletionTimestamp" in namespace["metadata"]:
        raise CommandError(_going(namespace, kube.context))
    release = helm_release(namespace)
    if release is None and records(kube, stack):
        release = release_name(stack), stack.namespace  # another engine began to adopt it, and was stopped
    if release is not None:
        return Owner("helm", release)
    labels = namespace["metadata"].get("labels") or {}
    if labels.get(PART_OF) != "tidegate" or labels.get(INSTANCE) != stack.environment.name:
        return Owner("")
    manager = managed_fields.owner(namespace)
    return Owner("pulumi" if manager is not None and manager.name.startswith("pulumi") else "kubectl")


def require(kube: Kubectl, stack: Stack, engine: str, *, adopt: bool = False) -> Owner | None:
    """Return who has a stack; raise CommandError where that is another engine, and it is not to be adopted."""
    owner = owner_of(kube, stack)
    ours = (release_name(stack), stack.namespace)
    if owner is None or adopt or (owner.engine == engine and owner.release in (None, ours)):
        return owner
    raise CommandError(f"{_whose(owner, stack)}\n    {_how_to_move(owner, stack, engine, kube.context)}")


def require_ours(objects: Sequence[KubernetesObject], stack: Stack, context: str, *, adopt: bool) -> None:
    """Raise CommandError for objects that exist and are not the release's, unless they are to be adopted."""
    release = release_name(stack), stack.namespace
    foreign = [item for item in objects if not _is_labelled(item, stack) and item["kind"] != "Namespace"]
    others = [item for item in objects if is_of_another(item, release)]
    if adopt and not foreign and not others:
        return
    shown = listed((f"{item['kind']} {item['metadata']['name']}" for item in foreign or others or objects), most=6)
    if others or foreign:
        raise CommandError(
            f"{stack.name} needs objects that exist in {context} and belong to somebody else: {shown}.\n"
            "    Nothing was changed. Rename or delete them, or name another namespace in the definition."
        )
    raise CommandError(
        f"{stack.name} has objects in {context} that are not Helm's: {shown}.\n    "
        + _how_to_move(Owner("kubectl"), stack, "helm", context)
    )


def is_of_another(item: KubernetesObject, release: tuple[str, str] | None) -> bool:
    """Say whether an object belongs to a Helm release, and that is not this one."""
    return helm_release(item) not in (None, release)


def _is_labelled(item: KubernetesObject, stack: Stack) -> bool:
    labels = item["metadata"].get("labels") or {}
    return labels.get(PART_OF) == "tidegate" and labels.get(INSTANCE) == stack.environment.name


def _whose(owner: Owner, stack: Stack) -> str:
    if owner.release is not None:
        name, namespace = map(escaped, owner.release)
        return f"{stack.name} was brought up with Helm, as release {name} in namespace {namespace}."
    known = {
        "pulumi": f"{stack.name} was brought up with Pulumi.",
        "kubectl": f"{stack.name} was brought up with kubectl, or by a GitOps controller.",
    }
    return known.get(owner.engine, f"The namespace {stack.namespace} is there already, and was made by somebody else.")


def _how_to_move(owner: Owner, stack: Stack, engine: str, context: str) -> str:
    goal = make("up", CLUSTER=context, STACK=stack.name, ENGINE=engine, ADOPT="1")
    if owner.release is not None and owner.release != (release_name(stack), stack.namespace):
        return "Nothing was changed. Uninstall that release first; its volumes stay, and are found again."
    if not owner.engine:
        return f"Nothing was changed. If it is meant for this stack, adopt it: {goal}"
    same = f" Go on with the same one ({make('up', CLUSTER=context, STACK=stack.name, ENGINE=owner.engine)}), or"
    return (
        f"Nothing was changed.{same if owner.engine in ('helm', 'pulumi') else ' You can'} move it: {goal}\n"
        "    The objects are adopted as they are, no pod restarts; docs/helm.md tells what that leaves behind."
    )


def _going(namespace: KubernetesObject, context: str) -> str:
    name = namespace["metadata"]["name"]
    why = [
        condition["message"]
        for condition in namespace.get("status", {}).get("conditions", ())
        if condition.get("status") == "True" and condition.get("type") in ("NamespaceContentRemaining", _FINALIZERS)
    ]
    return (
        f"namespace {name} is being deleted, so nothing can be made in it{f': {escaped(why[-1])}' if why else ''}.\n"
        "    Wait until it is gone, and run this again. What holds it: kubectl --context"
        f" {in_shell(context)} get namespace {in_shell(name)} -o yaml"
    )


_FINALIZERS = "NamespaceFinalizersRemaining"
