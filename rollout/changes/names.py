"""Names that something had before: what was rendered under a stack's, and what a preview says of a change of names."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from stacks.resolve.settings import ENVIRONMENT, PLANE
from stacks.stack import Stack

from .weaker import definitions
from .workloads import Tree, mapping, text

Thing = TypeVar("Thing")
_MOVED = "`make up` moves its Helm release or Pulumi stack; no object is made anew for that, and nothing restarts"


def under_names_of_now(found: Mapping[str, Thing], stacks: Iterable[Stack]) -> dict[str, Thing]:
    """Return what was found by the names of stacks, by the names that these stacks have now."""
    names = {former.name: stack.name for stack in stacks for former in stack.former() if stack.name not in found}
    return {names.get(name, name): thing for name, thing in found.items()}


def renamings(before: Iterable[Tree], after: Iterable[Tree]) -> Iterator[str]:
    """Yield what becomes of everything in a stack that has another name than before."""
    was, now = definitions(before, after)
    names = {ENVIRONMENT: [text(each, "name") for each in (was, now)]}
    names[PLANE] = [text(each, "dataPlane", "name") for each in (was, now)]
    for kind, (old, new) in names.items():
        if old != new:
            kept = "; its namespace and objects keep their names" if kind == ENVIRONMENT else ""
            yield f"{kind} {new}, formerly {old}: {_MOVED}{kept}"
    for what, past in mapping(now, "formerly").items():
        if not what.startswith((*names,)) and past != mapping(was, "formerly").get(what):
            yield f"{what}, formerly {past[-1]}: its objects keep the name {past[0]}"
