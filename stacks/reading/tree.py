"""From PyYAML's nodes to plain values that know their places, with bounds on their number and depth.

Values follow the core schema of YAML 1.2. PyYAML's own constructors follow YAML 1.1, where `on` is true, keep the last
of two equal keys, and unfold aliases without a bound: a small file could then fill the memory.
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
"""Plain scalars of YAML 1.2's core schema: what they look like, and how they begin."""
_MADE: Final[dict[str, Callable[[str], Any]]] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text, 0 if text[:2] in ("0o", "0x") else 10),
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
}
_MERGE = f"{_CORE}merge"


def loader_of(base: Any) -> Any:
    """Return a loader of PyYAML that resolves plain scalars as YAML 1.2 does."""
    made: Any = type("Loader", (base,), {"yaml_implicit_resolvers": {}})
    made.add_implicit_resolver(_MERGE, re.compile("<<$"), ["<"])
    for name, (pattern, begins) in _RESOLVED.items():
        made.add_implicit_resolver(f"{_CORE}{name}", re.compile(f"(?:{pattern})\\Z"), begins)
    return made


@dataclass(slots=True, eq=False)
class Node:
    """One value and what is known of its place."""

    value: Any
    key: Position  # Where its key (of a list's item: itself) begins.
    at: Position  # Where it begins.
    text: str | None = None  # A scalar as it is written.
    parts: "dict[str | int, Node]" = field(default_factory=dict)  # What is in a mapping or list, by key or index.


class StopReading(Exception):
    """What was found makes the rest of the file unreadable."""


class Reader:
    """Reads one document, and collects what is wrong with it on the way."""

    def __init__(self, file: str) -> None:
        self.found: list[Problem] = []  # Problems that have no path.
        self.root: Node | None = None
        self._file = file
        self._open: list[Any] = []  # Incomplete mappings and lists, outermost first.
        self._values = 0
        self._later: list[tuple[Position, str, tuple[str | int, ...], str, str]] = []
        self._path: list[str | int] = []
        self._aliases: list[Any] = []  # Marks of those that are not reached yet, the last one first.
        self._seen: set[int] = set()  # Nodes by their ids; PyYAML has one for all aliases of an anchor.
        self._unfolding = 0  # How many aliases this is in.

    def read(self, text: str, loader: Any) -> None:
        """Read a text; raises StopReading and the parser's own errors."""
        depth = documents = count = 0
        for event in yaml.parse(text, Loader=loader):  # PyYAML composes nodes by recursion, and shares those of aliases
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            documents += isinstance(event, yaml.DocumentStartEvent)
            count += isinstance(event, yaml.NodeEvent)
            if isinstance(event, yaml.AliasEvent):
                self._aliases.append(event.start_mark)
            if depth > MAX_DEPTH:
                why = "No definition needs that."
                self._stop(event.start_mark, f"values are nested more than {MAX_DEPTH} deep", why)
            if count > MAX_VALUES:
                self._stop(event.start_mark, f"the definition comes to more than {MAX_VALUES:,} values")
            if documents > 1:
                do = "Remove the line `---`, or move what follows to a file of its own."
                self._stop(event.start_mark, "a second YAML document begins here", "A definition is one document.", do)
        self._aliases.reverse()
        if (tree := yaml.compose(text, Loader=loader)) is not None:
            self.root = self._node(tree)

    def problems(self) -> list[Problem]:
        """Return everything that is wrong with the document, as far as it was read."""
        tree = self.root.value if self.root else None
        later = [Problem(at, readable_path(tree, path), what, why, do) for at, what, path, why, do in self._later]
        return [*self.found, *later]

    def _at(self, mark: Any) -> Position:
        return Position(self._file, mark.line + 1, mark.column + 1)

    def _say(self, at: Position, what: str, why: str = "", do: str = "") -> None:
        self._later.append((at, what, tuple(self._path), why, do))

    def _stop(self, mark: Any, what: str, why: str = "", do: str = "") -> NoReturn:
        self.found.append(Problem(self._at(mark), "", what, why, do))
        raise StopReading

    def _node(self, source: Any, key: Position | None = None) -> Node:
        """Return a value with all that is in it, a new one each time: nothing that happens to one alias happens to
        another."""
        is_alias = id(source) in self._seen
        self._seen.add(id(source))
        at = self._at(self._aliases.pop() if is_alias and not self._unfolding else source.start_mark)
        self._values += 1
        if self._values > MAX_VALUES:
            why = "Aliases count with all that they stand for: this is how a small file is made to fill the memory."
            self._stop(source.start_mark, f"the definition unfolds to more than {MAX_VALUES:,} values", why)
        if isinstance(source, yaml.ScalarNode):
            return Node(self._scalar(source, at), key or at, at, source.value)
        if source in self._open:
            self._say(key or at, "an alias stands inside the value it stands for", "It would never end.")
            return Node({}, key or at, at)
        if len(self._open) >= MAX_DEPTH:
            self._stop(source.start_mark, f"with aliases, values are nested more than {MAX_DEPTH} deep")
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
                    self._say(at, 'the key "<<" stands here twice', f"It is first at {merge_at}.")
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
            do = "Give it an alias of a mapping, as in `<<: *common`, or a list of such aliases."
            self._say(at, '"<<" takes in mappings only', do=do)

    def _key(self, owner: Node, source: Any, at: Position) -> str | None:
        """Read a key; None where its value cannot be kept."""
        node = self._node(source)
        key = node.value
        if isinstance(key, dict | list):
            do = "If this is a template's placeholder ({{ … }}) or a text with brackets, quote it."
            self._say(at, f"a key must be text, but this one is {kind_of(key)}", do=do)
            return None
        if not isinstance(key, str):
            key = node.text or ""
            what = (
                f"the key {escaped(key[:60])} is {kind_of(node.value)}" if key else "a key is missing before the colon"
            )
            self._say(
                at, what, "Keys are text.", f"Quote it: {shown(key)}." if key else "Write a key, or remove the colon."
            )
        if key in owner.parts:
            why = f"It is first at {owner.parts[key].key}; only one of them could count."
            self._say(at, f"the key {shown(key)} stands here twice", why, "Remove one, or merge the two.")
            return None
        return key

    def _scalar(self, source: Any, at: Position) -> Any:
        text, name = source.value, source.tag.removeprefix(_CORE)
        if bad := NOT_TEXT.search(text):  # an escape wrote it
            why = "It can be part of no program's argument, container's variable or object's name."
            self._say(at, f"the character U+{ord(bad.group()):04X} cannot stand in a text", why, "Remove its escape.")
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
        self._say(at, f"{shown(text)} is no {name} that can be used", do="Quote it if it is meant as text.")
        return None

    def _refuse_tag(self, source: Any, at: Position) -> None:
        name = f"!!{source.tag.removeprefix(_CORE)}" if source.tag.startswith(_CORE) else source.tag
        why = "A definition has text, numbers, true/false, null, lists and mappings only."
        do = "Remove the tag; if the `!` belongs to the text, quote the text."
        self._say(at, f"the tag {escaped(name[:60])} means nothing here", why, do)


def kind_of(value: Any) -> str:
    """Return in words what kind of value this is."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a mapping")
