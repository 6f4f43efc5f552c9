"""From the events of PyYAML's parser to plain values that know their places, with bounds on their number and depth.

Values follow the core schema of YAML 1.2. PyYAML's own constructors follow YAML 1.1, where `on` is true, keep the last
of two equal keys, and unfold aliases without a bound: a small file could then fill the memory.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Final, NoReturn

import yaml

from ..problems import Position, Problem, escaped, readable_path, shown
from .files import NOT_TEXT

MAX_VALUES: Final = 200_000
MAX_DEPTH: Final = 100

_CORE = "tag:yaml.org,2002:"
_TAGGED = {f"{_CORE}int": int, f"{_CORE}float": float, f"{_CORE}bool": bool, f"{_CORE}null": NoneType}
"""What a plain scalar with a tag must be; text has a tag of its own."""
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_INT_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FLOAT_NAME = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_START = frozenset("+-.0123456789")


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
    """Reads one document from the parser's events, and collects what is wrong with it on the way."""

    def __init__(self, file: str, events: Iterable[Any]) -> None:
        self.found: list[Problem] = []  # Problems that have no path.
        self.root: Node | None = None
        self._file = file
        self._events: Iterator[Any] = iter(events)
        self._open: list[tuple[Any, Node]] = []  # Incomplete mappings and lists with their marks, outermost first.
        self._values = 0
        self._later: list[tuple[Position, str, tuple[str | int, ...], str, str]] = []
        self._path: list[str | int] = []
        self._anchors: dict[str, Node] = {}

    def read(self) -> None:
        """Read all events; raises StopReading and the parser's own errors."""
        for event in self._events:
            if isinstance(event, yaml.NodeEvent):
                self._node(event)
            elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
                do = "Remove the line `---`, or move what follows to a file of its own."
                self._stop(event.start_mark, "a second YAML document begins here", "A definition is one document.", do)

    def open_marks(self) -> list[Any]:
        """Where the mappings and lists begin that are not complete."""
        return [mark for mark, _ in self._open]

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

    def _node(self, event: Any, key: Position | None = None) -> Node:
        mark, at = event.start_mark, self._at(event.start_mark)
        self._values += 1
        if self._values > MAX_VALUES:
            self._stop(mark, f"the definition comes to more than {MAX_VALUES:,} values")
        if isinstance(event, yaml.AliasEvent):
            return self._of_alias(event, key or at, at)
        is_map = isinstance(event, yaml.MappingStartEvent)
        if isinstance(event, yaml.ScalarEvent):
            node = Node(self._scalar(event, at), key or at, at, event.value)
        else:
            node = Node({} if is_map else [], key or at, at)
        self.root = self.root or node
        if event.anchor is not None and (first := self._anchors.setdefault(event.anchor, node)) is not node:
            what = f"the anchor &{escaped(event.anchor[:60])} is already used"
            self._say(at, what, f"It is first used at {first.at}.")
        if isinstance(event, yaml.ScalarEvent):
            return node
        if len(self._open) >= MAX_DEPTH:
            self._stop(mark, f"values are nested more than {MAX_DEPTH} deep", "No definition needs that.")
        if event.tag not in (None, "!", f"{_CORE}map" if is_map else f"{_CORE}seq"):
            self._refuse_tag(event, at)
        self._open.append((mark, node))
        if is_map:
            self._fill_mapping(node)
        else:
            for index, item in enumerate(self._inside()):
                self._put(node, index, item)
        self._open.pop()
        return node

    def _inside(self) -> Iterator[Any]:
        """Yield the events at which what is in a mapping or list begins."""
        while not isinstance(event := next(self._events), yaml.CollectionEndEvent):
            yield event

    def _of_alias(self, event: Any, key: Position, at: Position) -> Node:
        """Return what an alias stands for; an empty mapping where it stands for nothing that can be used."""
        first, name = self._anchors.get(event.anchor), escaped(event.anchor[:60])
        if first is None:
            do = f'If this is a pattern and no alias, quote it: "*{name}".'
            self._say(at, f"there is no anchor &{name} above for the alias *{name}", do=do)
        elif any(first is node for _, node in self._open):
            self._say(at, f"the alias *{name} stands inside the value it stands for", "It would never end.")
        else:
            node = self._copy(first, event.start_mark, len(self._open))
            node.key, node.at = key, at
            return node
        return Node({}, key, at)

    def _copy(self, node: Node, alias: Any, depth: int) -> Node:
        """Return a copy, so that nothing that happens to one alias happens to another."""
        self._values += 1
        if self._values > MAX_VALUES:
            why = "Aliases count with all that they stand for: this is how a small file is made to fill the memory."
            self._stop(alias, f"the definition unfolds to more than {MAX_VALUES:,} values", why)
        if isinstance(node.value, dict | list) and depth >= MAX_DEPTH:
            self._stop(alias, f"with this alias, values are nested more than {MAX_DEPTH} deep")
        parts = {step: self._copy(part, alias, depth + 1) for step, part in node.parts.items()}
        value = node.value
        if isinstance(value, dict | list):
            value = {step: part.value for step, part in parts.items()}
            value = value if isinstance(node.value, dict) else [*value.values()]
        return Node(value, node.key, node.at, node.text, parts)

    def _put(self, owner: Node, step: str | int, event: Any, key: Position | None = None) -> None:
        self._path.append(step)
        node = owner.parts[step] = self._node(event, key)
        if isinstance(step, int):
            owner.value.append(node.value)
        else:
            owner.value[step] = node.value
        self._path.pop()

    def _fill_mapping(self, node: Node) -> None:
        merged: list[Node] = []
        merge_at = None
        for key in self._inside():
            at = self._at(key.start_mark)
            if _is_merge_key(key):
                if merge_at is not None:
                    self._say(at, 'the key "<<" stands here twice', f"It is first at {merge_at}.")
                merge_at = at
                merged += self._merged(at, self._node(next(self._events)))
            elif (name := self._key(node, key, at)) is None:
                self._node(next(self._events))
            else:
                self._put(node, name, next(self._events), at)
        for source in merged:
            for step, part in source.parts.items():
                if step not in node.parts:
                    node.parts[step] = part
                    node.value[step] = part.value

    def _merged(self, at: Position, node: Node) -> list[Node]:
        sources = list(node.parts.values()) if isinstance(node.value, list) else [node]
        if all(isinstance(source.value, dict) for source in sources):
            return sources
        do = "Give it an alias of a mapping, as in `<<: *common`, or a list of such aliases."
        self._say(at, '"<<" takes in mappings only', do=do)
        return []

    def _key(self, owner: Node, event: Any, at: Position) -> str | None:
        """Read a key; None where its value cannot be kept."""
        node = self._node(event)
        key = node.value
        if isinstance(key, dict | list):
            do = "If this is a template's placeholder ({{ … }}) or a text with brackets, quote it."
            self._say(at, f"a key must be text, but this one is {kind_of(key)}", do=do)
            return None
        if not isinstance(key, str):
            key = node.text or ""
            if key:
                what = f"the key {escaped(key[:60])} is {kind_of(node.value)}"
                self._say(at, what, "Keys are text.", f"Quote it: {shown(key)}.")
            else:
                self._say(
                    at, "a key is missing before the colon", "Keys are text.", "Write a key, or remove the colon."
                )
        if key in owner.parts:
            why = f"It is first at {owner.parts[key].key}; only one of them could count."
            self._say(at, f"the key {shown(key)} stands here twice", why, "Remove one, or merge the two.")
            return None
        return key

    def _scalar(self, event: Any, at: Position) -> Any:
        tag, text = event.tag, event.value
        if bad := NOT_TEXT.search(text):  # an escape wrote it
            why = "No program, container or cluster could be told it."
            self._say(at, f"the character U+{ord(bad.group()):04X} cannot stand in a text", why, "Remove its escape.")
            return text
        if tag in ("!", f"{_CORE}str") or (tag is None and not event.implicit[0]):
            return text
        if tag is not None and tag not in _TAGGED:
            self._refuse_tag(event, at)
            return None
        try:
            value = _plain_value(text)
            if tag == f"{_CORE}float" and type(value) is int:
                return float(value)
        except (ValueError, OverflowError):
            self._say(at, "the number is too long to be one", do="Quote it if it is meant as text.")
            return None
        if tag is not None and type(value) is not _TAGGED[tag]:
            name = tag.removeprefix(_CORE)
            self._say(at, f"{shown(text)} is not what its tag !!{name} says", do="Remove the tag.")
        return value

    def _refuse_tag(self, event: Any, at: Position) -> None:
        name = f"!!{event.tag.removeprefix(_CORE)}" if event.tag.startswith(_CORE) else event.tag
        why = "A definition has text, numbers, true/false, null, lists and mappings only."
        do = "Remove the tag; if the `!` belongs to the text, quote the text."
        self._say(at, f"the tag {escaped(name[:60])} means nothing here", why, do)


def kind_of(value: Any) -> str:
    """Return in words what kind of value this is."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a mapping")


def _is_merge_key(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.tag is None and event.implicit[0]


def _plain_value(text: str) -> Any:
    """Return a plain scalar by YAML 1.2's core schema; ValueError for a number of absurd length."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] in _NUMBER_START:
        if _INT.fullmatch(text):
            return int(text)
        if _INT_BASE.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _FLOAT_NAME.fullmatch(text):
            return float(text.replace(".", ""))
    return text
