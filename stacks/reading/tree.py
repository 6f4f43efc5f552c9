"""From the events of PyYAML's parser to the tree, without recursion and with bounds.

No file, however built, can exhaust memory or the stack.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import yaml

from ..problems import Position, Problem, escaped, readable_path, shown
from .values import CORE, FLOAT, copied, kind_of, plain_value

MAX_VALUES: Final = 200_000
MAX_DEPTH: Final = 100


class Node:
    """One value with its place; `members` for mappings and `items` for lists say where what is in it begins."""

    __slots__ = ("height", "items", "mark", "members", "open", "size", "text", "value")

    def __init__(self, value: Any, mark: Any, text: str | None = None) -> None:
        self.value = value
        self.mark = mark
        self.text = text
        self.members: dict[str, tuple[Any, Any, Node]] = {}
        self.items: list[tuple[Any, Node]] = []
        self.size = 1
        self.height = 1
        self.open = False


class StopReading(Exception):
    """What was found makes the rest of the file unreadable."""


class Frame:
    """A mapping or list that is being read; `discard` when its value belongs to a key that was refused."""

    __slots__ = ("discard", "have_key", "is_map", "key", "key_mark", "merge", "merge_mark", "merges", "node")

    def __init__(self, node: Node, is_map: bool) -> None:
        self.node = node
        self.is_map = is_map
        self.key = ""
        self.key_mark: Any = None
        self.have_key = False
        self.discard = False
        self.merge = False
        self.merge_mark: Any = None
        self.merges: list[Node] = []


class Composer:
    """Takes the parser's events one by one and builds the tree, collecting problems on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.found: list[Problem] = []
        self._later: list[tuple[tuple[str | int, ...], Any, str, str, str]] = []
        self._frames: list[Frame] = []
        self._anchors: dict[str, Node] = {}
        self._values = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        """Act on one event."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            node = Node(None, event.start_mark, event.value)
            node.value = self._scalar(event)
            self._place(node, event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open(event, kind is yaml.MappingStartEvent)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close()
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                self._stop(
                    event.start_mark,
                    "a second YAML document begins here",
                    "A definition is one document.",
                    "Remove the line `---`, or move what follows to a file of its own.",
                )

    def open_marks(self) -> list[Any]:
        """Where the mappings and lists begin that are not complete."""
        return [frame.node.mark for frame in self._frames]

    def problems(self) -> list[Problem]:
        """Everything found so far, with paths that know the names of the list items by now."""
        tree = self.root.value if self.root else None
        return self.found + [
            Problem(self._at(mark), readable_path(tree, path), what, why, do)
            for path, mark, what, why, do in self._later
        ]

    def _at(self, mark: Any) -> Position:
        return Position(self.file, mark.line + 1, mark.column + 1)

    def _say(self, mark: Any, what: str, why: str = "", do: str = "") -> None:
        path: list[str | int] = []
        for frame in self._frames:
            if not frame.is_map:
                path.append(
                    max(len(frame.node.items) - 1, 0) if frame is not self._frames[-1] else len(frame.node.items)
                )
            elif frame.have_key and not frame.discard and not frame.merge:
                path.append(frame.key)
        self._later.append((tuple(path), mark, what, why, do))

    def _stop(self, mark: Any, what: str, why: str = "", do: str = "") -> NoReturn:
        self.found.append(Problem(self._at(mark), "", what, why, do))
        raise StopReading

    def _scalar(self, event: Any) -> Any:
        tag, text = event.tag, event.value
        if tag is None:
            if not event.implicit[0]:
                return text
            try:
                return plain_value(text)
            except ValueError:
                self._say(event.start_mark, "the number is too long to be one", do="Quote it if it is meant as text.")
                return None
        if tag in ("!", f"{CORE}str"):
            return text
        short = tag.removeprefix(CORE) if tag.startswith(CORE) else ""
        wanted = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}.get(short)
        if wanted is None:
            self._refuse_tag(event)
            return None
        try:
            value = plain_value(text)
        except ValueError:
            value = text
        if not isinstance(value, wanted) or (isinstance(value, bool) and short != "bool"):
            self._say(event.start_mark, f"{shown(text)} is not what its tag !!{short} says", do="Remove the tag.")
            return None
        return float(text) if short == "float" and FLOAT.fullmatch(text) else value

    def _refuse_tag(self, event: Any) -> None:
        tag = event.tag
        name = f"!!{tag.removeprefix(CORE)}" if tag.startswith(CORE) else tag
        self._say(
            event.start_mark,
            f"the tag {escaped(name[:60])} means nothing here",
            "A definition has text, numbers, true/false, null, lists and mappings only.",
            "Remove the tag; if the `!` belongs to the text, quote the text.",
        )

    def _open(self, event: Any, is_map: bool) -> None:
        if len(self._frames) >= MAX_DEPTH:
            self._stop(event.start_mark, f"values are nested more than {MAX_DEPTH} deep", "No definition needs that.")
        if event.tag not in (None, "!", f"{CORE}map" if is_map else f"{CORE}seq"):
            self._refuse_tag(event)
        node = Node({} if is_map else [], event.start_mark)
        node.open = True
        self._place(node, event)
        self._frames.append(Frame(node, is_map))

    def _close(self) -> None:
        frame = self._frames.pop()
        node = frame.node
        node.open = False
        for source in frame.merges:
            for key, entry in source.members.items():
                if key not in node.members:
                    node.members[key] = entry
                    node.value[key] = copied(entry[2].value)
                    node.height = max(node.height, entry[2].height + 1)
        if not self._frames:
            return
        above = self._frames[-1]
        above.node.size += node.size
        above.node.height = max(above.node.height, node.height + 1)
        if above.is_map:
            self._member_done(above, node)

    def _alias(self, event: Any) -> None:
        node, name = self._anchors.get(event.anchor), escaped(event.anchor[:60])
        if node is None:
            self._say(
                event.start_mark,
                f"there is no anchor &{name} above for the alias *{name}",
                do=f'If this is a pattern and no alias, quote it: "*{name}".',
            )
            node = Node({}, event.start_mark)
        elif node.open:
            self._say(
                event.start_mark, f"the alias *{name} stands inside the value it stands for", "It would never end."
            )
            node = Node({}, event.start_mark)
        elif len(self._frames) + node.height > MAX_DEPTH:
            self._stop(event.start_mark, f"with the alias *{name}, values are nested more than {MAX_DEPTH} deep")
        self._place(node, event)

    def _place(self, node: Node, event: Any) -> None:
        is_alias = type(event) is yaml.AliasEvent
        self._values += node.size
        if self._values > MAX_VALUES:
            why = "Aliases count with all that they stand for: this is how a small file is made to fill the memory."
            self._stop(
                event.start_mark,
                f"the definition {'unfolds' if is_alias else 'comes'} to more than {MAX_VALUES:,} values",
                why if is_alias else "",
            )
        if not is_alias and event.anchor is not None:
            if event.anchor in self._anchors:
                first = self._at(self._anchors[event.anchor].mark)
                name = escaped(event.anchor[:60])
                self._say(event.start_mark, f"the anchor &{name} is already used", f"It is first used at {first}.")
            else:
                self._anchors[event.anchor] = node
        if not self._frames:
            self.root = node
            return
        frame = self._frames[-1]
        value = copied(node.value) if is_alias else node.value
        if not frame.is_map:
            frame.node.items.append((event.start_mark, node))
            frame.node.value.append(value)
        elif not frame.have_key:
            self._key(frame, node, event)
            return
        elif not frame.discard and not frame.merge:
            frame.node.members[frame.key] = (frame.key_mark, event.start_mark, node)
            frame.node.value[frame.key] = value
        if not node.open:  # an opened one is counted when it closes
            frame.node.size += node.size
            frame.node.height = max(frame.node.height, node.height + 1)
            if frame.is_map:
                self._member_done(frame, node)

    def _key(self, frame: Frame, node: Node, event: Any) -> None:
        mark, key = event.start_mark, node.value
        if isinstance(key, (dict, list)):
            if not node.open:
                self._refuse_key(frame, node, mark)
            return  # an opened one is refused when it closes
        is_alias = type(event) is yaml.AliasEvent
        if key == "<<" and not is_alias and event.tag is None and event.implicit[0]:
            frame.have_key, frame.merge = True, True
            if frame.merge_mark is not None:
                self._say(mark, 'the key "<<" stands here twice', f"It is first at {self._at(frame.merge_mark)}.")
            frame.merge_mark = mark
            return
        if not isinstance(key, str):
            text = node.text or ""
            self._say(
                mark,
                f"the key {escaped(text[:60])} is {kind_of(key)}" if text else "a key is missing before the colon",
                "Keys are text.",
                f"Quote it: {shown(text)}." if text else "Write a key, or remove the colon.",
            )
            key = text
        if key in frame.node.members:
            self._say(
                mark,
                f"the key {shown(key)} stands here twice",
                f"It is first at {self._at(frame.node.members[key][0])}; only one of them could count.",
                "Remove one, or merge the two.",
            )
            frame.discard = True
        frame.key, frame.key_mark, frame.have_key = key, mark, True

    def _refuse_key(self, frame: Frame, node: Node, mark: Any) -> None:
        self._say(
            mark,
            f"a key must be text, but this one is {kind_of(node.value)}",
            do="If this is a template's placeholder ({{ … }}) or a text with brackets, quote it.",
        )
        frame.key_mark, frame.have_key, frame.discard = mark, True, True

    def _member_done(self, frame: Frame, node: Node) -> None:
        """A mapping's part is complete: a key that is a collection, or a value."""
        if not frame.have_key:
            self._refuse_key(frame, node, node.mark)
            return
        if frame.merge:
            sources = [item for _, item in node.items] if isinstance(node.value, list) else [node]
            if any(not isinstance(source.value, dict) for source in sources):
                self._say(
                    frame.merge_mark,
                    '"<<" takes in mappings only',
                    do="Give it an alias of a mapping, as in `<<: *common`, or a list of such aliases.",
                )
            else:
                frame.merges += sources
        frame.have_key = frame.discard = frame.merge = False
