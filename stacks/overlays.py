"""Lays a small part of a definition over another, by rules that a reader can hold in mind.

1. A mapping is merged key by key.
2. A list whose items have a `name` is merged by name: items of the same name are merged, new ones are added at the end.
3. Anything else – a number, a text, a list without names, any list by an empty one – is replaced.
4. `null` takes an inherited key away, so that its default holds again.
5. An item with `remove: true` takes the inherited item of that name away.
6. A mapping that changes its `kind` (or `mode`, `cloud`, or `engine`) is replaced as a whole.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from .load import Document
from .problems import Position, Problem, did_you_mean, nearest
from .reading.tree import Node

Path = tuple[str | int, ...]
Tree = Any

REMOVE = "remove"
TAGS = ("kind", "mode", "cloud", "engine")


@dataclass
class Layers:
    """Lays parts of a document over each other, and keeps what looks mistaken in them.

    In what comes out each value stands where the uppermost layer has it; a key whose value is null, too.
    """

    document: Document
    vain_removals: list[Problem] = field(default_factory=list)  # Items that are to be taken away, and are not there.
    _newcomers: dict[Position, tuple[str, list[str]]] = field(default_factory=dict)

    def laid(self, path: Path, keys: Collection[str], under: Document | None = None) -> Document:
        """Return the part at a path, of its keys only these, laid over another one, or over nothing."""
        node, _ = self.document.node(path)
        over = _mapping(node, {key: part for key, part in node.parts.items() if key in keys})
        laid = self.merged(under.root, over, path) if under else self._alone(over, path)
        return Document(laid.value, self.document.file, laid, shown_at="value")

    def advice(self, where: object) -> str:
        """Return what to do about an item that is added to an inherited list: such a name may be mistyped."""
        name, inherited = self._newcomers.get(where, ("", []))  # type: ignore[call-overload]
        do = f'"{name}" is new here: {did_you_mean(nearest(name, inherited))}'
        return f"{do}Inherited are: {', '.join(inherited)}." if name else ""

    def merged(self, under: Node, over: Node, path: Path = ()) -> Node:
        """Return `over` laid over `under`, by the rules above. Neither is changed."""
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
                    # What a mistyped item lacks further below is inherited, too.
                    lacking = [part, *(_below(part) if nearest(name, inherited) else ())]
                    self._newcomers |= {each.key: (name, inherited) for each in lacking if inherited}
            return _list(over, items.values())
        return self._alone(over, path)

    def _alone(self, node: Node, path: Path) -> Node:
        """Return a value without what only takes something away: keys that are null, items with `remove: true`."""
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
        what = f'"{item.value.get("name")}" is to be removed, and there is none to remove'
        problem = self.document.problem((*path, REMOVE), what, do="Check the name, or take the item away.")
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
    """Say whether this is a list that merges by name; rules report a name that stands twice."""
    return isinstance(tree, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in tree)
