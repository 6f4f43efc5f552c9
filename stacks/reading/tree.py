"""Turns PyYAML's nodes into plain values with their positions, and limits their number and depth.

Values follow the core schema of YAML 1.2. PyYAML's constructors follow YAML 1.1, where `on` is true. They also keep the
last of two equal keys, and expand aliases without a limit, so a small file could exhaust the memory.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml

from ..problems import Position, Problem, escaped, readable_path, shown
from .files import NOT_TEXT

MAX_VALUES: Final = 200_000
MAX_DEPTH: Final = 100

_CORE = "tag:yaml.org,2002:"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_RESOLVED: Final = {
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": ("true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": ("[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (_FLOAT, list("-+.0123456789")),
}
"""Plain scalars of YAML 1.2's core schema: their patterns, and their possible first characters."""
_MADE: Final[dict[str, Callable[[str], Any]]] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text, 0 if text[:2] in ("0o", "0x") else 10),
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
}
_MERGE = f"{_CORE}merge"


def loader_of(base: Any) -> Any:
    """Return a PyYAML loader that resolves plain scalars as YAML 1.2 does."""
    made: Any = type("Loader", (base,), {"yaml_implicit_resolvers": {}})
    made.add_implicit_resolver(_MERGE, re.compile("<<$"), ["<"])
    for name, (pattern, begins) in _RESOLVED.items():
        made.add_implicit_resolver(f"{_CORE}{name}", re.compile(f"(?:{pattern})\\Z"), begins)
    return made


@dataclass(slots=True, eq=False)
class Node:
    """One value and its position."""

    value: Any
    key: Position  # The start of its key, or of the item in a list.
    at: Position  # The start of the value.
    text: str | None = None  # The source text of a scalar.
    parts: "dict[str | int, Node]" = field(default_factory=dict)  # The members of a mapping or list, by key or index.


class StopReading(Exception):
    """The rest of the file cannot be read."""


class Reader:
    """Reads one document, and collects its problems."""

    def __init__(self, file: str) -> None:
        self.found: list[Problem] = []  # Problems that have no path.
        self.root: Node | None = None
        self._file = file
        self._open: list[Any] = []  # Incomplete mappings and lists, outermost first.
        self._values = 0
        self._later: list[tuple[Position, str, tuple[str | int, ...], str, str]] = []
        self._path: list[str | int] = []
        self._aliases: list[Any] = []  # Marks of the aliases ahead, the last one first.
        self._seen: set[int] = set()  # Ids of nodes. PyYAML has one node for all aliases of an anchor.
        self._unfolding = 0  # The number of aliases around the current value.

    def read(self, text: str, loader: Any) -> None:
        """Read a text. Raises StopReading and the parser's errors."""
        depth = documents = count = 0
        for event in yaml.parse(text, Loader=loader):  # PyYAML composes nodes recursively, and aliases share a node.
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            documents += isinstance(event, yaml.DocumentStartEvent)
            count += isinstance(event, yaml.NodeEvent)
            if isinstance(event, yaml.AliasEvent):
                self._aliases.append(event.start_mark)
            if depth > MAX_DEPTH:
                self._stop(event.start_mark, f"values are nested deeper than the limit of {MAX_DEPTH} levels")
            if count > MAX_VALUES:
                self._stop(event.start_mark, f"the definition has more than the limit of {MAX_VALUES:,} values")
            if documents > 1:
                do = "Remove the line `---`, or move the following lines to another file."
                self._stop(event.start_mark, "a second YAML document begins here", "A definition is one document.", do)
        self._aliases.reverse()
        if (tree := yaml.compose(text, Loader=loader)) is not None:
            self.root = self._node(tree)

    def problems(self) -> list[Problem]:
        """Return all problems of the document, up to the place where reading stopped."""
        tree = self.root.value if self.root else None
        later = [Problem(at, readable_path(tree, path), what, why, do) for at, what, path, why, do in self._later]
        return [*self.found, *later]

    def _at(self, mark: Any) -> Position:
        return Position(self._file, mark.line + 1, mark.column + 1)

    def _report(self, at: Position, what: str, why: str = "", do: str = "") -> None:
        self._later.append((at, what, tuple(self._path), why, do))

    def _stop(self, mark: Any, what: str, why: str = "", do: str = "") -> NoReturn:
        self.found.append(Problem(self._at(mark), "", what, why, do))
        raise StopReading

    def _node(self, source: Any, key: Position | None = None) -> Node:
        """Return a new node for a value and its members, so that changes of one alias do not affect another."""
        is_alias = id(source) in self._seen
        self._seen.add(id(source))
        at = self._at(self._aliases.pop() if is_alias and not self._unfolding else source.start_mark)
        self._values += 1
        if self._values > MAX_VALUES:
            what = f"with aliases, the definition has more than the limit of {MAX_VALUES:,} values"
            why = "Each alias counts with all values of its anchor. Otherwise a small file could exhaust the memory."
            self._stop(source.start_mark, what, why)
        if isinstance(source, yaml.ScalarNode):
            return Node(self._scalar(source, at), key or at, at, source.value)
        if source in self._open:
            self._report(key or at, "an alias is inside its own anchor", "The value would never end.", "Remove it.")
            return Node({}, key or at, at)
        if len(self._open) >= MAX_DEPTH:
            what = f"with aliases, values are nested deeper than the limit of {MAX_DEPTH} levels"
            self._stop(source.start_mark, what)
        is_map = isinstance(source, yaml.MappingNode)
        if source.tag != (f"{_CORE}map" if is_map else f"{_CORE}seq"):
            self._refuse_tag(source, at)
        node = Node({} if is_map else [], key or at, at)
        self._open.append(source)
        self._unfolding += is_alias
        if is_map:
            self._fill_mapping(node, source)
        else:
            for index, item in enumerate(source.value):
                self._put(node, index, item)
        self._unfolding -= is_alias
        self._open.pop()
        return node

    def _put(self, owner: Node, step: str | int, source: Any, key: Position | None = None) -> None:
        self._path.append(step)
        node = owner.parts[step] = self._node(source, key)
        if isinstance(step, int):
            owner.value.append(node.value)
        else:
            owner.value[step] = node.value
        self._path.pop()

    def _fill_mapping(self, node: Node, source: Any) -> None:
        merged: list[Node] = []
        merge_at = None
        for key, value in source.value:
            at = self._at(key.start_mark)
            if key.tag == _MERGE:
                if merge_at is not None:
                    self._report(
                        at,
                        'this mapping has the key "<<" twice',
                        f"The first is at {merge_at}.",
                        "Remove one, and set the other to a list of both.",
                    )
                merge_at = at
                merged += self._merged(at, self._node(value))
            elif (name := self._key(node, key, at)) is None:
                self._node(value)
            else:
                self._put(node, name, value, at)
        for each in merged:
            for step, part in each.parts.items():
                if step not in node.parts:
                    node.parts[step] = part
                    node.value[step] = part.value

    def _merged(self, at: Position, node: Node) -> Iterator[Node]:
        sources = list(node.parts.values()) if isinstance(node.value, list) else [node]
        if all(isinstance(source.value, dict) for source in sources):
            yield from sources
        else:
            do = "Set it to an alias of a mapping, as in `<<: *common`, or to a list of such aliases."
            self._report(at, '"<<" accepts only mappings', do=do)

    def _key(self, owner: Node, source: Any, at: Position) -> str | None:
        """Return a key, or None if it cannot be used."""
        node = self._node(source)
        key = node.value
        if isinstance(key, dict | list):
            do = "If this is a placeholder of a template ({{ … }}) or a text with brackets, quote it."
            self._report(at, f"a key must be text, but this one is {kind_of(key)}", do=do)
            return None
        if not isinstance(key, str):
            key = node.text or ""
            what = f"the key {escaped(key[:60])} is {kind_of(node.value)}" if key else "no key is before the colon"
            self._report(
                at, what, "Keys are text.", f"Quote it: {shown(key)}." if key else "Add a key, or remove the colon."
            )
        if key in owner.parts:
            why = f"The first is at {owner.parts[key].key}."
            self._report(at, f"this mapping has the key {shown(key)} twice", why, "Remove one, or merge the two.")
            return None
        return key

    def _scalar(self, source: Any, at: Position) -> Any:
        text, name = source.value, source.tag.removeprefix(_CORE)
        if bad := NOT_TEXT.search(text):  # From an escape.
            why = "No argument, environment variable or object's name can contain it."
            self._report(at, f"a text cannot contain the character U+{ord(bad.group()):04X}", why, "Remove its escape.")
            return text
        if source.tag == _MERGE:
            return text
        if name not in _MADE:
            self._refuse_tag(source, at)
            return None
        forms = {"int", "float"} if name == "float" else {name}
        if any(re.fullmatch(_RESOLVED[form][0] if form in _RESOLVED else ".*", text, re.DOTALL) for form in forms):
            with suppress(ValueError, OverflowError):
                value = _MADE[name](text)
                if not (isinstance(value, float) and math.isinf(value)) or "inf" in text.lower():
                    return value
        self._report(at, f"{shown(text)} is not a valid {name}", do="Quote it if you mean text.")
        return None

    def _refuse_tag(self, source: Any, at: Position) -> None:
        name = f"!!{source.tag.removeprefix(_CORE)}" if source.tag.startswith(_CORE) else source.tag
        why = "A definition has only text, numbers, true/false, null, lists and mappings."
        do = "Remove the tag. If the `!` belongs to the text, quote the text."
        self._report(at, f"unknown tag {escaped(name[:60])}", why, do)


def kind_of(value: Any) -> str:
    """Return the kind of a value in words."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a mapping")
