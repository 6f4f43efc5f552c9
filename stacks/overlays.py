"""Merges a layer of a definition into the layer below it, by these rules:

1. Mappings merge key by key.
2. Lists of items with a `name` merge by name: items with the same name merge, and new items go to the end.
3. Other values replace the inherited value: scalars, lists without names, and empty lists.
4. `null` removes an inherited key, so its default applies again.
5. An item with `remove: true` removes the inherited item with that name.
6. A mapping with another `kind` (or `mode`, `cloud` or `engine`) replaces the inherited mapping.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from .definition.base import did_you_mean, nearest
from .load import Document
from .problems import Position, Problem
from .reading.tree import Node

Path = tuple[str | int, ...]
Tree = Any

REMOVE = "remove"
TAGS = ("kind", "mode", "cloud", "engine")


@dataclass
class Layers:
    """Merges parts of a document, and collects their probable mistakes. Each value of the result has the position of
    the uppermost layer that sets it, even if it sets null."""

    document: Document
    vain_removals: list[Problem] = field(default_factory=list)  # Items with `remove: true` that no layer has.
    _newcomers: dict[Position, tuple[str, list[str]]] = field(default_factory=dict)

    def laid(self, path: Path, keys: Collection[str], under: Document | None = None) -> Document:
        """Return some keys of the part at a path, merged into another document, or alone."""
        node, _ = self.document.node(path)
        over = _mapping(node, {key: part for key, part in node.parts.items() if key in keys})
        laid = self.merged(under.root, over, path) if under else self._alone(over, path)
        return Document(laid.value, self.document.file, laid, shown_at="value")

    def advice(self, where: object) -> tuple[str, bool]:
        """Return a remedy for an item that is new in an inherited list, and whether its name probably has a typo."""
        name, inherited = self._newcomers.get(where, ("", []))  # type: ignore[call-overload]
        near = nearest(name, inherited)
        do = f'"{name}" is new here. {did_you_mean(near)}Inherited names: {", ".join(inherited)}.' if name else ""
        return do, bool(near)

    def merged(self, under: Node, over: Node, path: Path = ()) -> Node:
        """Return `over` merged into `under`, by the rules above, without changing either."""
        if isinstance(under.value, dict) and isinstance(over.value, dict):
            if any(under.value.get(tag) != over.value[tag] for tag in TAGS if tag in under.value and tag in over.value):
                return self._alone(over, path)
            parts = dict(under.parts)
            for key, part in over.parts.items():
                below = (*path, key)
                known = part.value is not None and key in under.value
                parts[key] = self.merged(parts[key], part, below) if known else self._alone(part, below)
            return _mapping(over, parts)
        if over.value and _is_named(under.value) and _is_named(over.value):
            items = {part.value["name"]: part for part in under.parts.values()}
            inherited = list(items)
            for index, part in over.parts.items():
                name, below = part.value["name"], (*path, index)
                if part.value.get(REMOVE) is True:
                    if items.pop(name, None) is None:
                        self._in_vain(part, below)
                elif name in items:
                    items[name] = self.merged(items[name], part, below)
                else:
                    items[name] = self._alone(part, below)
                    # The inherited item also has the missing keys further below.
                    lacking = [part, *(_below(part) if nearest(name, inherited) else ())]
                    self._newcomers |= {each.key: (name, inherited) for each in lacking if inherited}
            return _list(over, items.values())
        return self._alone(over, path)

    def _alone(self, node: Node, path: Path) -> Node:
        """Return a value without keys that are null and items with `remove: true`."""
        parts = {}
        for step, part in node.parts.items():
            if isinstance(node.value, list) and isinstance(part.value, dict) and part.value.get(REMOVE) is True:
                self._in_vain(part, (*path, step))
            else:
                parts[step] = self._alone(part, (*path, step))
        if isinstance(node.value, list):
            return _list(node, parts.values())
        return _mapping(node, parts) if isinstance(node.value, dict) else node

    def _in_vain(self, item: Node, path: Path) -> None:
        what = f'there is no inherited item "{item.value.get("name")}" to remove'
        problem = self.document.problem((*path, REMOVE), what, do="Correct the name, or remove this item.")
        self.vain_removals.append(problem)


def _mapping(like: Node, parts: dict[str | int, Node]) -> Node:
    value = {key: part.value for key, part in parts.items() if part.value is not None}
    return replace(like, value=value, parts=parts)


def _list(like: Node, items: Iterable[Node]) -> Node:
    parts: dict[str | int, Node] = dict(enumerate(items))
    return replace(like, value=[part.value for part in parts.values()], parts=parts)


def _below(node: Node) -> Iterator[Node]:
    for part in node.parts.values():
        yield part
        yield from _below(part)


def _is_named(tree: Tree) -> bool:
    """Return whether this is a list that merges by name."""
    return isinstance(tree, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in tree)
