"""Orphans: live objects of an environment, or of a data plane, that has left the definition.

The labels and annotations of their Namespace, and the marks of engines, identify them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from policies import guardrails
from policies.guardrails.objects import mapping, text
from policies.guardrails.settings import settings_of
from stacks.command import WRONG_INPUT, CommandError, for_stack, in_shell, none_such
from stacks.definition import DataPlane, Environment
from stacks.problems import counted, escaped, listed
from stacks.stack import Definition, StackId

from .changes.permissions import definition_in
from .contexts import context_in
from .engines.ownership import helm_release, owner_in
from .kubectl import Kubectl, KubernetesObject
from .live import INSTANCE, PART_OF, remaining_objects

_BY = {"helm": "Helm", "pulumi": "Pulumi"}


@dataclass(frozen=True)
class Orphan:
    """The live objects of a namespace that the definition does not describe."""

    home: StackId
    engine: str  # The engine that brought it up, as in `Owner`.
    since: str  # The day on which its namespace was created.
    objects: Sequence[KubernetesObject]  # Without volumes, claims and the namespace.
    moved: str = ""  # The namespace, in this cluster, that the definition gives the stack of this name.
    left_for: str = ""  # The context of the other cluster that the definition gives the stack of this name.
    twin: bool = False  # Whether another orphan has the same name, as of another definition.

    @property
    def goes_by_name(self) -> bool:
        """Whether `tidegate down --stack <name>` removes it."""
        return self.engine in _BY and not self.moved and not self.twin

    @property
    def words(self) -> str:
        """A description, as a sentence without its subject (the stack's name) and its full stop."""
        by = _BY.get(self.engine, "kubectl or a GitOps controller")
        there = f"namespace {self.home.namespace}, since {self.since}, {counted(self.objects, 'object')} by {by}"
        if self.moved:
            return f"is still in its former namespace ({there}), but the definition sets {self.moved}"
        if self.left_for:
            return f"is still in its former cluster ({there}), but the definition sets {self.left_for}"
        stranger = "" if self.home.data_plane.platform else ". If another definition has it, set `platform` in both"
        return f"is no longer described, but still exists ({there}){stranger}"

    @property
    def command(self) -> str:
        """Return the command that removes it. Its volumes stay."""
        if self.goes_by_name:
            return for_stack("down", self.home)
        context, namespace = self.home.data_plane.context_name, self.home.namespace
        kinds = ",".join(sorted({item["kind"].lower() for item in self.objects}))
        labels = f"{PART_OF}=tidegate,{INSTANCE}={self.home.environment.made_as}"
        return f"kubectl --context {in_shell(context)} delete {kinds} -n {namespace} -l {labels}"


def orphans_in(
    definition: Definition, cluster: str, name: str | None, wrong: CommandError | None = None
) -> list[Orphan]:
    """Return the orphans of a cluster, or the one of that name. `wrong` is the error of `on_cluster`. If no orphan has
    the name, it is raised again, with the names of the orphans."""
    kube, described = Kubectl(context_in(definition, cluster)), [stack.name for stack in definition.stacks]
    names = {each.name for stack in definition.stacks for each in (stack, *stack.former())}
    has_plane = any(plane.context_name == kube.context for plane in definition.header.data_planes)
    if wrong is not None and not (has_plane or kube.is_known()):
        raise wrong
    found = list(_orphans(kube, definition))
    count = Counter(each.home.name for each in found)
    found = [replace(each, twin=count[each.home.name] > 1) for each in found]
    chosen = [each for each in found if name in (None, each.home.name)]
    if wrong is None or chosen:
        return chosen
    if name is None or name in names:
        raise wrong
    nowhere = f"There is no stack {escaped(name)}, neither in {escaped(definition.file)} nor in {escaped(kube.context)}"
    only = [each.home.name for each in found]
    there = f" Only the cluster has: {listed(only)}." if only else ""
    raise CommandError(f"{none_such(nowhere, name, [*described, *only])}{there}", WRONG_INPUT)


def _orphans(kube: Kubectl, definition: Definition) -> Iterator[Orphan]:
    planes = definition.header.data_planes
    here = [plane for plane in planes if plane.context_name == kube.context]
    platforms = {plane.platform for plane in here or planes}
    known = {each.name: stack for stack in definition.stacks for each in (stack, *stack.former())}
    lived_in = {each.namespace for each in known.values() if each.data_plane in here}
    for namespace in kube.find(["namespaces"], "-l", f"{PART_OF}=tidegate"):
        recorded = mapping(definition_in([namespace]), "dataPlane")
        name = namespace["metadata"]["name"]
        plane = text(recorded, "name") or _plane_name(namespace, here, kube.context)
        platform = recorded.get("platform")
        home = _home(namespace, plane, kube.context, platform)
        if home is None or name in lived_in or platform not in platforms:
            continue
        if "deletionTimestamp" in namespace["metadata"]:
            continue
        moved = left_for = ""
        if now := known.get(home.name):
            context = now.data_plane.context_name
            if (now.namespace, context) == (name, recorded.get("context")):
                continue  # a data plane that reaches the same cluster by another context
            if kube.context == context or _are_one(kube, Kubectl(context)):
                if now.namespace == name:
                    continue
                moved = now.namespace
            else:
                left_for = context
        if objects := remaining_objects(kube, home):  # after `down`, only kept objects remain
            engine, since = owner_in(kube, home, namespace).engine, namespace["metadata"]["creationTimestamp"][:10]
            home = replace(home, definition=definition.file)
            yield Orphan(home, engine, since, objects, moved, left_for)


def _are_one(kube: Kubectl, other: Kubectl) -> bool:
    """Return whether two contexts lead to one cluster. If the other one does not respond, assume that they do."""
    try:
        one, two = (each.get("namespace", "kube-system") for each in (kube, other))
    except CommandError:
        return True
    return one is None or two is None or one["metadata"]["uid"] == two["metadata"]["uid"]


def _plane_name(namespace: KubernetesObject, here: Sequence[DataPlane], context: str) -> str:
    """Return the data plane of a namespace. Older versions did not record it."""
    release = helm_release(namespace)
    if release is not None:
        return release[0].removeprefix(f"{text(namespace, 'metadata', 'labels', INSTANCE)}-")
    return here[0].name if here else context


def _home(namespace: KubernetesObject, plane: str, context: str, platform: str | None) -> StackId | None:
    """Return the environment and data plane of a namespace. None if someone else used the labels."""
    made_as = text(namespace, "metadata", "labels", INSTANCE)
    environment = text(definition_in([namespace]), "name") or made_as
    past = (made_as,) if made_as != environment else ()
    home = namespace["metadata"]["name"]
    kind = settings_of(text(namespace, "metadata", "annotations", guardrails.ANNOTATION)).kind
    try:
        return StackId(
            Environment(name=environment, formerly=past, namespace=home, production=kind == "production"),
            DataPlane(name=plane, context=context, platform=platform, environments=(environment,)),
        )
    except ValidationError:
        return None
