"""Looks past mistakes: what is left of a faulty part is still held against the rules, so that one run says all."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from .problems import Problem, readable_path
from .trees import frozen

Checked = TypeVar("Checked", bound=BaseModel)
Path = tuple[str | int, ...]
_ROUNDS = 6
_LISTS = ("datasets", "servers", "models")
"""Whose items can be left out: whatever misses one names it. Of others, rules also say that there are none."""


@dataclass
class Disregarded:
    """What was left out, and so what a rule may not complain about: it would be an echo of the first mistake."""

    names: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)

    def hides(self, problem: Problem) -> bool:
        """Say whether a problem may come from what was left out: it names it, or is in the same item of a list.

        What data planes are asked for follows from all servers.
        """
        if any(f'"{name}"' in problem.what for name in self.names):
            return True
        if problem.path.startswith("dataPlanes"):
            return any(place.startswith("servers") for place in self.places)
        return any(problem.path == place or problem.path.startswith(f"{place}.") for place in self.places)


def what_is_left(
    model: type[Checked], tree: Mapping[str, Any], error: ValidationError
) -> tuple[Checked | None, Disregarded]:
    """Return the model of a tree without its faulty values (their defaults hold) and without its faulty list items.

    None where that does not help, such as where a required key is missing outside of any list.
    """
    disregarded = Disregarded()
    rest: Any = _copied(tree)
    for _ in range(_ROUNDS):
        for path in _deepest_first(error, rest):
            with suppress(LookupError):  # it went with an item that was left out just now
                _leave_out(rest, path, disregarded)
        try:
            return model.model_validate(frozen(rest)), disregarded
        except ValidationError as another:
            error = another
    return None, disregarded


def _deepest_first(error: ValidationError, tree: Any) -> list[Path]:
    """Return the places of the mistakes, later items of a list before earlier ones, so that indexes stay true."""
    places = {_place(details["loc"], tree) for details in error.errors(include_url=False, include_context=False)}
    return sorted(
        places, key=lambda path: [(isinstance(step, int), step if isinstance(step, int) else 0) for step in path]
    )[::-1]


def _place(loc: tuple[str | int, ...], tree: Any) -> Path:
    """Return how far an error's location goes into the tree; it also names the tags of unions, which are no keys."""
    path: Path = ()
    for step in loc:
        inside = isinstance(tree, Mapping) and step in tree
        if inside or (isinstance(tree, list) and isinstance(step, int) and step < len(tree)):
            tree = tree[step]
            path = (*path, step)
    return path


def _leave_out(tree: Any, path: Path, disregarded: Disregarded) -> None:
    """Leave out a scalar's key, else the nearest list item that holds it, else the key."""
    whole = _at(tree, path)
    if path and isinstance(path[-1], str) and not isinstance(whole, Mapping | list):
        place = readable_path(tree, path[:-1])
        disregarded.places.add(place[: place.rfind("]") + 1] or place)
        del _at(tree, path[:-1])[path[-1]]
        return
    while path and not isinstance(path[-1], int):
        path = path[:-1]
    if not path or path[0] not in _LISTS:
        return
    items, index = _at(tree, path[:-1]), path[-1]
    if isinstance(items, list) and isinstance(index, int) and index < len(items):
        item = items[index]
        if isinstance(item, Mapping) and isinstance(item.get("name"), str):
            disregarded.names.add(item["name"])
        disregarded.places.add(readable_path(tree, path[:-1]))
        del items[index]


def _at(tree: Any, path: Path) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def _copied(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _copied(value) for key, value in tree.items()}
    return [_copied(item) for item in tree] if isinstance(tree, list) else tree
