"""Former names: a stack is compared with the one that had its former name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from policies.guardrails.objects import mapping, text
from stacks.resolve.settings import ENVIRONMENT, PLANE
from stacks.stack import Stack

from .permissions import definition_in, definitions
from .workloads import Tree

Thing = TypeVar("Thing")
Home = tuple[str, str]  # A namespace, and its kubeconfig context.
_PARTS = (ENVIRONMENT, ("name",)), (PLANE, ("dataPlane", "name"))
_MOVED = "`tidegate up` moves its Helm release or Pulumi stack. No object is replaced, and nothing restarts"


def under_names_of_now(found: Mapping[str, Thing], stacks: Iterable[Stack]) -> dict[str, Thing]:
    """Return things by the present names of their stacks, given them by former names."""
    names = {former.name: stack.name for stack in stacks for former in stack.former() if stack.name not in found}
    return {names.get(name, name): thing for name, thing in found.items()}


def by_home(found: Mapping[str, Thing], home: Callable[[Thing], Home], stacks: Iterable[Stack]) -> dict[str, Thing]:
    """Return things by the stack that now has their home, if no stack has their own name."""
    described = {stack.name: (stack.namespace, stack.data_plane.context_name) for stack in stacks}
    new = {there: name for name, there in described.items() if name not in found}
    return {name if name in described else new.get(home(thing), name): thing for name, thing in found.items()}


def home_of(objects: Sequence[Tree]) -> Home:
    """Return the namespace and the context of a stack's objects. Empty if they do not record them."""
    spaces = [text(item, "metadata", "name") for item in objects if item.get("kind") == "Namespace"]
    return "".join(spaces[:1]), text(definition_in(objects), "dataPlane", "context")


def renamings(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[str]:
    """Yield the consequences of each new name in a stack."""
    was, now = definitions(before, after)
    for kind, keys in _PARTS:
        old, new = text(was, *keys), text(now, *keys)
        if old == new:
            continue
        if old in (mapping(now, "formerly").get(f"{kind} {new}") or ()):
            kept = ". Its namespace and objects keep their names" if kind == ENVIRONMENT else ""
            yield f"{kind} {new}, formerly {old}: {_MOVED}{kept}"
        else:
            yield f"{old} applied this, not {kind} {new}: `tidegate up` refuses unless {new} sets formerly: [{old}]"
    for what, past in mapping(now, "formerly").items():
        if not what.startswith((ENVIRONMENT, PLANE)) and past != mapping(was, "formerly").get(what):
            yield f"{what}, formerly {past[-1]}: its objects keep the name {past[0]}"


def hints(before: Mapping[str, Sequence[Tree] | None], after: Mapping[str, Sequence[Tree] | None]) -> Iterator[str]:
    """Yield new stacks that could be old ones whose environment or data plane has a new name."""
    gone, new = (
        [definition_in(objects) for name, objects in some.items() if objects and not others.get(name)]
        for some, others in ((before, after), (after, before))
    )
    for was, now in ((was, now) for now in new for was in gone):
        for (kind, keys), (_, same) in zip(_PARTS, reversed(_PARTS), strict=True):
            if text(was, *keys) and text(was, *same) == text(now, *same):
                old, name = text(was, *keys), text(now, *keys)
                yield f"{kind} {name} is new, and {old} is gone. If it is the same {kind}, set formerly: [{old}] in it"
