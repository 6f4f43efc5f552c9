"""Lays a small part of a definition over another, by rules that a reader can hold in mind.

1. A mapping is merged key by key.
2. A list whose items have a `name` is merged by name: items of the same name are merged, new ones are added at the end.
3. Anything else – a number, a text, a list without names, any list by an empty one – is replaced.
4. `null` takes an inherited key away, so that its default holds again.
5. An item with `remove: true` takes the inherited item of that name away.
6. A mapping that changes its `kind` (or `mode`, or `cloud`) is replaced as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .load import Document, PathInTree, Source
from .problems import Position, Problem, did_you_mean, nearest

Path = tuple[str | int, ...]
Tree = Any

REMOVE = "remove"
_TAGS = ("kind", "mode", "cloud")


def merged(under: Tree, over: Tree) -> Tree:
    """Return `over` laid over `under`, by the rules above. Neither is changed."""
    if isinstance(under, dict) and isinstance(over, dict):
        if any(tag in under and tag in over and under[tag] != over[tag] for tag in _TAGS):
            return without_nulls(over)
        result = dict(under)
        for key, value in over.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = merged(under[key], value) if key in under else without_nulls(value)
        return result
    if over and _is_named(under) and _is_named(over):
        items = {item["name"]: item for item in under}
        for item in over:
            name = item["name"]
            if item.get(REMOVE) is True:
                items.pop(name, None)
            else:
                items[name] = merged(items[name], item) if name in items else without_nulls(item)
        return list(items.values())
    return without_nulls(over)


def without_nulls(tree: Tree) -> Tree:
    """Return the tree without what only takes something away: keys whose value is null, items with `remove: true`."""
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [without_nulls(item) for item in tree if not (isinstance(item, dict) and item.get(REMOVE) is True)]
    return tree


def _is_named(tree: Tree) -> bool:
    """Say whether this is a list that merges by name; rules report a name that stands twice."""
    return isinstance(tree, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in tree)


def names_twice(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, str, str]]:
    """Yield place, name and list of every item of a list whose name an earlier item of that list has."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from names_twice(value, (*path, key))
    elif isinstance(tree, list):
        seen: set[str] = set()
        for index, item in enumerate(tree):
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(name, str):
                if name in seen:
                    yield (*path, index, "name"), name, str(path[-1]) if path else ""
                seen.add(name)
            yield from names_twice(item, (*path, index))


def _items(under: Tree, over: Tree, path: Path = ()) -> Iterator[tuple[Path, dict[str, Tree], dict[str, Tree]]]:
    """Yield each mapping in a list of `over`: its place, itself, and the inherited items of that list by their names.

    A new item's own lists inherit nothing.
    """
    if isinstance(over, dict):
        for key, value in over.items():
            yield from _items(under.get(key) if isinstance(under, dict) else None, value, (*path, key))
    elif isinstance(over, list):
        inherited = {item["name"]: item for item in under} if _is_named(under) else {}
        for index, item in enumerate(over):
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(item, dict):
                yield (*path, index), item, inherited
            yield from _items(inherited.get(name) if isinstance(name, str) else None, item, (*path, index))


@dataclass(frozen=True)
class Layer:
    """The mapping at `root` of a document, of which `part` takes part in a merge."""

    document: Document
    root: Path
    part: Tree


class Layered(Source):
    """A tree of several layers that knows from which one, and so from which line, each of its values came."""

    def __init__(self, layer: Layer, under: "Layered | None" = None) -> None:
        """Lay a layer over others, or over nothing."""
        self._layer, self._under = layer, under
        self._layers: list[Layer] = [layer, *(under._layers if under else ())]
        self._inherited = under.tree if under else {}
        self._known_places: dict[int, dict[str, int]] = {}
        self.tree = merged(self._inherited, layer.part)
        self.file = layer.document.file

    def vain_removals(self) -> Iterator[Problem]:
        """Yield what is wrong with items that the uppermost layer takes away, and that are not there."""
        for path, item, inherited in _items(self._inherited, self._layer.part):
            if item.get(REMOVE) is True and item.get("name") not in inherited:
                what = f'"{item.get("name")}" is to be removed, and there is none to remove'
                place = (*self._layer.root, *path, REMOVE)
                yield self._layer.document.problem(place, what, do="Check the name, or take the item away.")

    def newcomers(self) -> dict[Position, str]:
        """Return where the layers add items to lists that they inherit, and advice: such a name may be mistyped."""
        found = self._under.newcomers() if self._under else {}
        for path, item, inherited in _items(self._inherited, self._layer.part):
            name = item.get("name")
            if inherited and isinstance(name, str) and name not in inherited:
                do = f'"{name}" is new here: {did_you_mean(nearest(name, inherited))}'
                position = self._layer.document.position((*self._layer.root, *path))
                found[position] = f"{do}Inherited are: {', '.join(inherited)}."
        return found

    def origin(self, path: PathInTree) -> tuple[Document, Path]:
        """Return the document and path of the uppermost layer that says most of `path`."""
        found = [(self._found(layer.part, path), layer) for layer in self._layers]
        place, layer = max(found, key=lambda each: len(each[0]))
        return layer.document, layer.root + place

    def _found(self, part: Tree, path: PathInTree) -> Path:
        """Walk `path` through the merged tree and a layer together; return the layer's own path, as far as it goes."""
        tree: Tree = self.tree
        found: list[str | int] = []
        for key in path:
            index: str | int = key
            if isinstance(key, int) and isinstance(tree, list) and isinstance(part, list) and key < len(tree):
                name = tree[key].get("name") if isinstance(tree[key], dict) else None
                if isinstance(name, str):
                    index = self._places(part).get(name, -1)
            if index == -1:
                break
            try:
                part = part[index]
            except (KeyError, IndexError, TypeError):
                break
            found.append(index)  # also a key that is null here, and so is not in the merged tree
            try:
                tree = tree[key]
            except (KeyError, IndexError, TypeError):
                break
        return tuple(found)

    def _places(self, items: list[Tree]) -> dict[str, int]:
        """Where each name stands first in a list of a layer, looked up once for each list."""
        places = self._known_places.get(id(items))
        if places is None:
            places = self._known_places[id(items)] = {}
            for index, item in enumerate(items):
                name = item.get("name") if isinstance(item, dict) else None
                if isinstance(name, str):
                    places.setdefault(name, index)
        return places
