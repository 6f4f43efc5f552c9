"""Lays a small part of a definition over another, by rules that a reader can hold in mind.

1. A mapping is merged key by key.
2. A list whose items have a `name` is merged by name: items of the same name are merged, new ones are added at the end.
3. Anything else – a number, a text, a list without names, any list by an empty one – is replaced.
4. `null` takes an inherited key away, so that its default holds again.
5. An item with `remove: true` takes the inherited item of that name away.
6. A mapping that changes its `kind` (or `mode`, or `cloud`) is replaced as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .load import Document, PathInTree, Source
from .problems import did_you_mean, nearest

Path = tuple[str | int, ...]
Tree = Any

REMOVE = "remove"
_TAGS = ("kind", "mode", "cloud")


def merged(under: Tree, over: Tree) -> Tree:
    """Return `over` laid over `under`, by the rules above. Neither is changed."""
    if isinstance(under, Mapping) and isinstance(over, Mapping):
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
    if isinstance(tree, Mapping):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [without_nulls(item) for item in tree if not (isinstance(item, Mapping) and item.get(REMOVE) is True)]
    return tree


def _is_named(tree: Tree) -> bool:
    """Say whether this is a list that merges by name; rules report a name that stands twice."""
    return isinstance(tree, list) and all(
        isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in tree
    )


def names_twice(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, str, str]]:
    """Yield place, name and list of every item of a list whose name an earlier item of that list has."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from names_twice(value, (*path, key))
    elif isinstance(tree, list):
        seen: set[str] = set()
        for index, item in enumerate(tree):
            name = item.get("name") if isinstance(item, Mapping) else None
            if isinstance(name, str):
                if name in seen:
                    yield (*path, index, "name"), name, str(path[-1]) if path else ""
                seen.add(name)
            yield from names_twice(item, (*path, index))


def vain_removals(under: Tree, over: Tree) -> Iterator[tuple[Path, str]]:
    """Yield place and name of every item that `over` takes away and `under` does not have."""
    for path, item, inherited in _items(under, over):
        if item.get(REMOVE) is True and item.get("name") not in inherited:
            yield (*path, REMOVE), str(item.get("name"))


def new_items(under: Tree, over: Tree) -> Iterator[tuple[Path, str]]:
    """Yield place and advice for every item of `over` that is new in its list: its name may be mistyped."""
    for path, item, inherited in _items(under, over):
        name = item.get("name")
        if inherited and isinstance(name, str) and name not in inherited:
            guess = did_you_mean(nearest(name, inherited))
            yield path, f'"{name}" is new here: {guess}Inherited are: {", ".join(inherited)}.'


def _items(under: Tree, over: Tree, path: Path = ()) -> Iterator[tuple[Path, Mapping[str, Tree], dict[str, Tree]]]:
    """Yield each mapping in a list of `over`: its place, itself, and the inherited items of that list by their names.

    A new item's own lists inherit nothing.
    """
    if isinstance(over, Mapping):
        for key, value in over.items():
            yield from _items(under.get(key) if isinstance(under, Mapping) else None, value, (*path, key))
    elif isinstance(over, list):
        inherited = {item["name"]: item for item in under} if _is_named(under) else {}
        for index, item in enumerate(over):
            name = item.get("name") if isinstance(item, Mapping) else None
            if isinstance(item, Mapping):
                yield (*path, index), item, inherited
            yield from _items(inherited.get(name) if isinstance(name, str) else None, item, (*path, index))


@dataclass(frozen=True)
class Layer:
    """A part of a document that takes part in a merge: the mapping at `root`."""

    document: Document
    root: Path = ()

    @property
    def tree(self) -> Tree:
        """The mapping itself."""
        tree: Tree = self.document.tree
        for key in self.root:
            tree = tree[key]
        return tree


class Layered(Source):
    """A merged tree that knows from which layer, and so from which line, each of its values came."""

    def __init__(self, layers: Sequence[tuple[Layer, Tree]]) -> None:
        """Merge layers, the lowest first; each comes with the part of its mapping that takes part."""
        self._layers = list(layers)
        self._known_places: dict[int, dict[str, int]] = {}
        self.tree = {}
        for _, part in layers:
            self.tree = merged(self.tree, part)
        self.file = layers[0][0].document.file

    def origin(self, path: PathInTree) -> tuple[Document, Path]:
        """Return the document and path of the uppermost layer that says most of `path`."""
        found = [(self._found(part, path), layer) for layer, part in reversed(self._layers)]
        place, layer = max(found, key=lambda each: len(each[0]))
        return layer.document, layer.root + place

    def _found(self, part: Tree, path: PathInTree) -> Path:
        """Walk `path` through the merged tree and a layer together; return the layer's own path, as far as it goes."""
        tree: Tree = self.tree
        found: list[str | int] = []
        for key in path:
            index: str | int = key
            if isinstance(key, int) and isinstance(tree, list) and isinstance(part, list) and key < len(tree):
                name = tree[key].get("name") if isinstance(tree[key], Mapping) else None
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
                name = item.get("name") if isinstance(item, Mapping) else None
                if isinstance(name, str):
                    places.setdefault(name, index)
        return places
