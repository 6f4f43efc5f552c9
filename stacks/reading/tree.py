"""From the events of PyYAML's parser to plain values that know their places, with bounds on their number and depth.

Values follow the core schema of YAML 1.2. PyYAML's own constructors follow YAML 1.1, where `on` is true, keep the last
of two equal keys, and unfold aliases without a bound: a small file could then fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, Final, NamedTuple, NoReturn

import yaml

from ..problems import Position, Problem, escaped, readable_path, shown

MAX_VALUES: Final = 200_000
MAX_DEPTH: Final = 100

_CORE = "tag:yaml.org,2002:"
_TAGGED: Final[Mapping[str | None, tuple[type, ...]]] = {
    None: (),
    f"{_CORE}int": (int,),
    f"{_CORE}float": (int, float),
    f"{_CORE}bool": (bool,),
    f"{_CORE}null": (NoneType,),
}
"""What a plain scalar with a tag may be; text has a tag of its own."""
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_INT_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FLOAT_NAME = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_START = frozenset("+-.0123456789")


class Node:
    """One value: where it begins, how a scalar is written, and the nodes in a mapping or list by key or index."""

    __slots__ = ("height", "mark", "parts", "size", "text", "value")

    def __init__(self, value: Any, mark: Any, text: str | None = None) -> None:
        self.value = value
        self.mark = mark
        self.text = text
        self.parts: dict[str | int, Part] = {}
        self.size = 1
        """Number of values in it, itself among them, with aliases unfolded."""
        self.height = 1


class Part(NamedTuple):
    """A member of a mapping or an item of a list: where its key (the item) and its value begin, and the value."""

    key: Any
    value: Any
    node: Node


class StopReading(Exception):
    """What was found makes the rest of the file unreadable."""


class Reader:
    """Builds the tree of one document from the parser's events, and collects what is wrong with it on the way."""

    def __init__(self, file: str, events: Iterable[Any]) -> None:
        self.root: Node | None = None
        self.found: list[Problem] = []
        """Problems that have no path."""
        self._file = file
        self._events: Iterator[Any] = iter(events)
        self._later: list[tuple[tuple[str | int, ...], Any, str, str, str]] = []
        self._path: list[str | int] = []
        self._open: list[Node] = []
        """The mappings and lists that are not complete yet, outermost first."""
        self._anchors: dict[str, Node] = {}
        self._values = 0

    def read(self) -> None:
        """Read all events; raises StopReading and the parser's own errors."""
        for event in self._events:
            if isinstance(event, yaml.NodeEvent):
                self.root = self._begun(event)
                self._complete(self.root, event)
            elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
                do = "Remove the line `---`, or move what follows to a file of its own."
                self._stop(event.start_mark, "a second YAML document begins here", "A definition is one document.", do)

    def open_marks(self) -> list[Any]:
        """Where the mappings and lists begin that are not complete."""
        return [node.mark for node in self._open]

    def problems(self) -> list[Problem]:
        """Everything found so far, with paths that know the names of the list items by now."""
        tree = self.root.value if self.root else None
        return self.found + [
            Problem(self._at(mark), readable_path(tree, path), what, why, do)
            for path, mark, what, why, do in self._later
        ]

    def _at(self, mark: Any) -> Position:
        return Position(self._file, mark.line + 1, mark.column + 1)

    def _say(self, mark: Any, what: str, why: str = "", do: str = "") -> None:
        self._later.append((tuple(self._path), mark, what, why, do))

    def _stop(self, mark: Any, what: str, why: str = "", do: str = "") -> NoReturn:
        self.found.append(Problem(self._at(mark), "", what, why, do))
        raise StopReading

    def _begun(self, event: Any) -> Node:
        """Return the node that an event begins: a scalar or what an alias stands for complete, a collection empty."""
        mark = event.start_mark
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias:
            node = self._anchored(event)
        elif isinstance(event, yaml.ScalarEvent):
            node = Node(self._scalar(event), mark, event.value)
        else:
            if len(self._open) >= MAX_DEPTH:
                self._stop(mark, f"values are nested more than {MAX_DEPTH} deep", "No definition needs that.")
            is_map = isinstance(event, yaml.MappingStartEvent)
            if event.tag not in (None, "!", f"{_CORE}map" if is_map else f"{_CORE}seq"):
                self._refuse_tag(event)
            node = Node({} if is_map else [], mark)
        self._values += node.size
        if self._values > MAX_VALUES:
            why = "Aliases count with all that they stand for: this is how a small file is made to fill the memory."
            what = f"the definition {'unfolds' if is_alias else 'comes'} to more than {MAX_VALUES:,} values"
            self._stop(mark, what, why if is_alias else "")
        if not is_alias and event.anchor is not None:
            first = self._anchors.setdefault(event.anchor, node)
            if first is not node:
                name = escaped(event.anchor[:60])
                self._say(mark, f"the anchor &{name} is already used", f"It is first used at {self._at(first.mark)}.")
        return node

    def _complete(self, node: Node, event: Any) -> None:
        """Read what belongs to a collection; an alias and a scalar are complete."""
        if not isinstance(event, yaml.CollectionStartEvent):
            return
        self._open.append(node)
        if isinstance(event, yaml.MappingStartEvent):
            self._mapping(node)
        else:
            index = 0
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                self._add(node, index, item.start_mark, item)
                index += 1
        self._open.pop()

    def _add(self, owner: Node, step: str | int | None, mark: Any, event: Any) -> Node:
        """Read the value that an event begins into a mapping or list; without a step it is read and left out."""
        if step is not None:
            self._path.append(step)
        node = self._begun(event)
        if step is not None:
            owner.parts[step] = Part(mark, event.start_mark, node)
            value = _copied(node.value) if isinstance(event, yaml.AliasEvent) else node.value
            if isinstance(step, int):
                owner.value.append(value)
            else:
                owner.value[step] = value
        self._complete(node, event)
        self._count(owner, node)
        if step is not None:
            self._path.pop()
        return node

    def _count(self, owner: Node, node: Node) -> None:
        owner.size += node.size
        owner.height = max(owner.height, node.height + 1)

    def _mapping(self, node: Node) -> None:
        merged: list[Node] = []
        merge_mark = None
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            mark = event.start_mark
            if _is_merge_key(event):
                if merge_mark is not None:
                    self._say(mark, 'the key "<<" stands here twice', f"It is first at {self._at(merge_mark)}.")
                merge_mark = mark
                self._begun(event)
                merged += self._merged(mark, self._add(node, None, mark, next(self._events)))
            else:
                key = self._key(node, event)
                self._add(node, key, mark, next(self._events))
        for source in merged:
            for name, part in source.parts.items():
                if name not in node.parts:
                    node.parts[name] = part
                    node.value[name] = _copied(part.node.value)
                    node.height = max(node.height, part.node.height + 1)

    def _merged(self, mark: Any, node: Node) -> list[Node]:
        sources = [part.node for part in node.parts.values()] if isinstance(node.value, list) else [node]
        if all(isinstance(source.value, dict) for source in sources):
            return sources
        do = "Give it an alias of a mapping, as in `<<: *common`, or a list of such aliases."
        self._say(mark, '"<<" takes in mappings only', do=do)
        return []

    def _key(self, owner: Node, event: Any) -> str | None:
        """Read a key; None where its value cannot be kept."""
        mark = event.start_mark
        node = self._begun(event)
        if isinstance(node.value, dict | list):
            self._complete(node, event)
            self._count(owner, node)
            do = "If this is a template's placeholder ({{ … }}) or a text with brackets, quote it."
            self._say(mark, f"a key must be text, but this one is {kind_of(node.value)}", do=do)
            return None
        key = node.value
        if not isinstance(key, str):
            key = node.text or ""
            self._say(
                mark,
                f"the key {escaped(key[:60])} is {kind_of(node.value)}" if key else "a key is missing before the colon",
                "Keys are text.",
                f"Quote it: {shown(key)}." if key else "Write a key, or remove the colon.",
            )
        if key in owner.parts:
            self._say(
                mark,
                f"the key {shown(key)} stands here twice",
                f"It is first at {self._at(owner.parts[key].key)}; only one of them could count.",
                "Remove one, or merge the two.",
            )
            return None
        return key

    def _anchored(self, event: Any) -> Node:
        """Return what an alias stands for; an empty mapping where it stands for nothing that can be used."""
        node, name, mark = self._anchors.get(event.anchor), escaped(event.anchor[:60]), event.start_mark
        if node is None:
            do = f'If this is a pattern and no alias, quote it: "*{name}".'
            self._say(mark, f"there is no anchor &{name} above for the alias *{name}", do=do)
        elif node in self._open:
            self._say(mark, f"the alias *{name} stands inside the value it stands for", "It would never end.")
        elif len(self._open) + node.height > MAX_DEPTH:
            self._stop(mark, f"with the alias *{name}, values are nested more than {MAX_DEPTH} deep")
        else:
            return node
        return Node({}, mark)

    def _scalar(self, event: Any) -> Any:
        tag, text = event.tag, event.value
        if tag in ("!", f"{_CORE}str") or (tag is None and not event.implicit[0]):
            return text
        wanted = _TAGGED.get(tag)
        if wanted is None:
            self._refuse_tag(event)
            return None
        try:
            value = _plain_value(text)
        except ValueError:
            self._say(event.start_mark, "the number is too long to be one", do="Quote it if it is meant as text.")
            return None
        if tag is not None and type(value) not in wanted:
            name = tag.removeprefix(_CORE)
            self._say(event.start_mark, f"{shown(text)} is not what its tag !!{name} says", do="Remove the tag.")
            return None
        return float(text) if float in wanted and _FLOAT.fullmatch(text) else value

    def _refuse_tag(self, event: Any) -> None:
        name = f"!!{event.tag.removeprefix(_CORE)}" if event.tag.startswith(_CORE) else event.tag
        self._say(
            event.start_mark,
            f"the tag {escaped(name[:60])} means nothing here",
            "A definition has text, numbers, true/false, null, lists and mappings only.",
            "Remove the tag; if the `!` belongs to the text, quote the text.",
        )


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


def _copied(value: Any) -> Any:
    """Return a copy for an alias, so that a change at one place of the tree is none at another."""
    if isinstance(value, dict):
        return {key: _copied(below) for key, below in value.items()}
    return [_copied(below) for below in value] if isinstance(value, list) else value
