"""Reads a definition file: YAML 1.2 values as a plain tree, and the line and column of each of them.

The events of PyYAML's parser are composed here, without recursion and with bounds, so that no file, however built, can
exhaust memory or the stack. Whatever is wrong with a file is a `DefinitionError`, never another exception.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml

from stacks.problems import DefinitionError, Position, Problem, escaped, listed, readable_path, shown

MAX_BYTES = 10 * 1024 * 1024
MAX_VALUES = 200_000
MAX_DEPTH = 100

PathInTree = Sequence[str | int]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_INT_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FLOAT_NAME = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_START = frozenset("+-.0123456789")
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\U0010ffff]")
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class _Node:
    """One value with its place; `members` for mappings and `items` for lists say where what is in it begins."""

    __slots__ = ("height", "items", "mark", "members", "open", "size", "text", "value")

    def __init__(self, value: Any, mark: Any, text: str | None = None) -> None:
        self.value = value
        self.mark = mark
        self.text = text
        self.members: dict[str, tuple[Any, Any, _Node]] = {}
        self.items: list[tuple[Any, _Node]] = []
        self.size = 1
        self.height = 1
        self.open = False


@dataclass(frozen=True)
class Document:
    """A loaded definition: the plain `tree`, and where in `file` each part of it stands."""

    tree: dict[str, Any]
    file: str
    _root: _Node = field(repr=False, compare=False)

    def position(self, path: PathInTree) -> Position:
        """Where the key (or list item) at `path` stands, or its nearest known ancestor."""
        return self._at(self._find(path)[0])

    def value_position(self, path: PathInTree) -> Position:
        """Where the value at `path` begins, or the nearest known ancestor's."""
        return self._at(self._find(path)[1])

    def get(self, path: PathInTree) -> Any:
        """The value at `path`, or None."""
        found = self._find(path)
        return found[2].value if found[3] else None

    def text(self, path: PathInTree) -> str | None:
        """The scalar at `path` as it is written in the file (`26.10`, not 26.1); None for anything else."""
        found = self._find(path)
        return found[2].text if found[3] else None

    def path_text(self, path: PathInTree) -> str:
        """The path in words for people: `servers[ondemand].pools[small].gpu`."""
        return readable_path(self.tree, path)

    def problem(
        self,
        path: PathInTree,
        what: str,
        why: str = "",
        do: str = "",
        *,
        at: Literal["key", "value"] = "key",
        severity: Literal["error", "advisory"] = "error",
    ) -> Problem:
        """A problem at `path` of this file, for rules that look at the whole definition."""
        where = self.position(path) if at == "key" else self.value_position(path)
        return Problem(where, self.path_text(path), what, why, do, severity)

    def _at(self, mark: Any) -> Position:
        return Position(self.file, mark.line + 1, mark.column + 1)

    def _find(self, path: PathInTree) -> tuple[Any, Any, _Node, bool]:
        key, value, node = self._root.mark, self._root.mark, self._root
        for step in path:
            if isinstance(step, str) and step in node.members:
                key, value, node = node.members[step]
            elif isinstance(step, int) and 0 <= step < len(node.items):
                value, node = node.items[step]
                key = value
            else:
                return key, value, node, False
        return key, value, node, True


def load(path: Path | str) -> Document:
    """Read a definition file; raise DefinitionError with every problem that stands in the way."""
    file = str(path)
    data = _read(file)
    for mark, name in (
        (b"\xff\xfe\x00\x00", "UTF-32"),
        (b"\x00\x00\xfe\xff", "UTF-32"),
        (b"\xff\xfe", "UTF-16"),
        (b"\xfe\xff", "UTF-16"),
    ):
        if data.startswith(mark):
            _refuse(file, f"the file is {name} text", do="Save as UTF-8 (your editor calls it the file's encoding).")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = len(_LINE_BREAK.findall(before.decode("utf-8", "replace"))) + 1
        column = len(before[max(before.rfind(b"\n"), before.rfind(b"\r")) + 1 :].decode("utf-8", "replace")) + 1
        _refuse(
            Position(file, line, column),
            f"byte 0x{data[error.start]:02x} at offset {error.start} (line {line}) is not UTF-8",
            "A definition is a text file in UTF-8.",
            "Save as UTF-8; if this is not a text file at all, check the file's name.",
        )
    return parse(text, file)


def parse(text: str, file: str) -> Document:
    """Read a definition from text in memory; `file` is the name that its positions and problems carry."""
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES:
        _refuse_size(file)
    if bad := _NOT_TEXT.search(text):
        _refuse(
            _position_of(text, bad.start(), file),
            f"the character U+{ord(bad.group()):04X} cannot stand in a text file",
            "It looks like a binary file, or one in another encoding than UTF-8." if bad.group() == "\0" else "",
            "Remove it, or check that this is the file you meant.",
        )
    composer = _Composer(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            composer.take(event)
    except _StopReading:
        pass
    except yaml.MarkedYAMLError as error:
        composer.found.append(_syntax_problem(error, text, file, composer.open_marks()))
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML's own parser lets wild \U escapes through
        composer.found.append(Problem(file, "", "the file is not valid YAML", escaped(str(error))))
    problems = composer.problems()
    if problems:
        raise DefinitionError(problems)
    root = composer.root
    if root is None or root.value is None:
        _refuse(file, "the file is empty", do="Start from the reference, stacks/inference.yaml.")
    if not isinstance(root.value, dict):
        _refuse(
            Position(file, root.mark.line + 1, root.mark.column + 1),
            f"a definition is a mapping of keys to values, but this is {_kind(root.value)}",
            do="Begin each line at the margin with a key and a colon, as in `servers:`.",
        )
    return Document(root.value, file, root)


# ---- from bytes ----


def _refuse(where: Position | str, what: str, why: str = "", do: str = "") -> NoReturn:
    raise DefinitionError([Problem(where, "", what, why, do)])


def _refuse_size(file: str) -> NoReturn:
    _refuse(file, f"the file is larger than {MAX_BYTES // 1024 // 1024} MB", "No definition is that large.")


def _read(file: str) -> bytes:
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        why, do = _near_names(file)
        _refuse(file, "there is no such file", why, do)
    except IsADirectoryError:
        inside = [name for name in _names_in(file) if name.endswith((".yaml", ".yml"))]
        _refuse(file, "this is a folder, not a file", do=f"In it: {listed(inside, 10)}." if inside else "")
    except PermissionError:
        _refuse(file, "the file may not be read", do="Check its permissions, and who you are running as.")
    except OSError as error:
        _refuse(file, f"the file cannot be read: {error.strerror or error}")
    except ValueError:  # a NUL, or text that no file system can encode
        _refuse(file, "this cannot be the name of a file")
    if len(data) > MAX_BYTES:
        _refuse_size(file)
    return data


def _names_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in itertools.islice(entries, 2_000))
    except OSError:
        return []


def _near_names(file: str) -> tuple[str, str]:
    folder, name = os.path.split(file)
    if folder and not os.path.isdir(folder):
        return f"There is no folder {escaped(folder)} either.", ""
    names = _names_in(folder or ".")
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    near = near or [other for other in names if other.endswith((".yaml", ".yml"))][:3]
    return "", f"Did you mean {' or '.join(escaped(os.path.join(folder, other)) for other in near)}?" if near else ""


def _position_of(text: str, offset: int, file: str) -> Position:
    line, begin = 1, 0
    for found in _LINE_BREAK.finditer(text, 0, offset):
        line, begin = line + 1, found.end()
    return Position(file, line, offset - begin + 1)


# ---- from events to the tree ----


class _StopReading(Exception):
    """What was found makes the rest of the file unreadable."""


class _Frame:
    """A mapping or list that is being read; `discard` when its value belongs to a key that was refused."""

    __slots__ = ("discard", "have_key", "is_map", "key", "key_mark", "merge", "merge_mark", "merges", "node")

    def __init__(self, node: _Node, is_map: bool) -> None:
        self.node = node
        self.is_map = is_map
        self.key = ""
        self.key_mark: Any = None
        self.have_key = False
        self.discard = False
        self.merge = False
        self.merge_mark: Any = None
        self.merges: list[_Node] = []


class _Composer:
    """Takes the parser's events one by one and builds the tree, collecting problems on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: _Node | None = None
        self.found: list[Problem] = []
        self._later: list[tuple[tuple[str | int, ...], Any, str, str, str]] = []
        self._frames: list[_Frame] = []
        self._anchors: dict[str, _Node] = {}
        self._values = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        """Act on one event."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            node = _Node(None, event.start_mark, event.value)
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
        raise _StopReading

    def _scalar(self, event: Any) -> Any:
        tag, text = event.tag, event.value
        if tag is None:
            if not event.implicit[0]:
                return text
            try:
                return _plain(text)
            except ValueError:
                self._say(event.start_mark, "the number is too long to be one", do="Quote it if it is meant as text.")
                return None
        if tag in ("!", f"{_CORE}str"):
            return text
        short = tag.removeprefix(_CORE) if tag.startswith(_CORE) else ""
        wanted = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}.get(short)
        if wanted is None:
            self._refuse_tag(event)
            return None
        try:
            value = _plain(text)
        except ValueError:
            value = text
        if not isinstance(value, wanted) or (isinstance(value, bool) and short != "bool"):
            self._say(event.start_mark, f"{shown(text)} is not what its tag !!{short} says", do="Remove the tag.")
            return None
        return float(text) if short == "float" and _FLOAT.fullmatch(text) else value

    def _refuse_tag(self, event: Any) -> None:
        tag = event.tag
        name = f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag
        self._say(
            event.start_mark,
            f"the tag {escaped(name[:60])} means nothing here",
            "A definition has text, numbers, true/false, null, lists and mappings only.",
            "Remove the tag; if the `!` belongs to the text, quote the text.",
        )

    def _open(self, event: Any, is_map: bool) -> None:
        if len(self._frames) >= MAX_DEPTH:
            self._stop(event.start_mark, f"values are nested more than {MAX_DEPTH} deep", "No definition needs that.")
        if event.tag not in (None, "!", f"{_CORE}map" if is_map else f"{_CORE}seq"):
            self._refuse_tag(event)
        node = _Node({} if is_map else [], event.start_mark)
        node.open = True
        self._place(node, event)
        self._frames.append(_Frame(node, is_map))

    def _close(self) -> None:
        frame = self._frames.pop()
        node = frame.node
        node.open = False
        for source in frame.merges:
            for key, entry in source.members.items():
                if key not in node.members:
                    node.members[key] = entry
                    node.value[key] = _copied(entry[2].value)
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
            node = _Node({}, event.start_mark)
        elif node.open:
            self._say(
                event.start_mark, f"the alias *{name} stands inside the value it stands for", "It would never end."
            )
            node = _Node({}, event.start_mark)
        elif len(self._frames) + node.height > MAX_DEPTH:
            self._stop(event.start_mark, f"with the alias *{name}, values are nested more than {MAX_DEPTH} deep")
        self._place(node, event)

    def _place(self, node: _Node, event: Any) -> None:
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
        value = _copied(node.value) if is_alias else node.value
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

    def _key(self, frame: _Frame, node: _Node, event: Any) -> None:
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
                f"the key {escaped(text[:60])} is {_kind(key)}" if text else "a key is missing before the colon",
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

    def _refuse_key(self, frame: _Frame, node: _Node, mark: Any) -> None:
        self._say(
            mark,
            f"a key must be text, but this one is {_kind(node.value)}",
            do="If this is a template's placeholder ({{ … }}) or a text with brackets, quote it.",
        )
        frame.key_mark, frame.have_key, frame.discard = mark, True, True

    def _member_done(self, frame: _Frame, node: _Node) -> None:
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


def _plain(text: str) -> Any:
    """A plain scalar by YAML 1.2's core schema; ValueError for a number of absurd length."""
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
    """A copy of its own for each alias, so that nobody who changes one place of the tree changes another."""
    if isinstance(value, dict):
        return {key: _copied(below) for key, below in value.items()}
    return [_copied(below) for below in value] if isinstance(value, list) else value


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a mapping")


# ---- syntax errors in plain words ----

# What PyYAML says (in its context and problem; both parsers' wordings) → whether to point at where the thing began,
# what we say, and what to do about it. The first that fits counts.
_QUOTE_SIGN = 'Quote the text, as in `key: "@value"`; these signs have a meaning of their own: @ ` % & * ! | > { [.'
_INDENT = "Give keys of one mapping the same indentation, and what belongs to a key two spaces more."
_WORDS: tuple[tuple[str, bool, str, str], ...] = (
    (r"quoted scalar.*(end of stream|document)", True, "the quote that opens here is never closed", "Close it."),
    (r"unknown escape character", False, r"a backslash in double quotes begins an escape, and this is none",
     r"Write \\ for a backslash, or use single quotes."),
    (r"escape code|escape sequence|hexadecimal", False, "the escape after this backslash is not complete or not valid",
     r"Write \\ for a backslash, or use single quotes."),
    (r"flow sequence.*',' or ']'", True, "the bracket [ that opens here is not closed, or a comma is missing in it",
     "Close it with ], and put commas between the items."),
    (r"flow mapping.*',' or '}'", True, "the brace { that opens here is not closed, or a comma is missing in it",
     "Close it with }, and put commas between the members."),
    (r"tab character", False, "a tab is used to indent", "Indent with spaces."),
    (r"mapping values are not allowed", False, "a colon that cannot stand here",
     "If it belongs to a text, quote the text; if it ends a key, check this line's indentation and the line above."),
    (r"(simple key|mapping keys|sequence entries).*are not allowed|block sequence entries", False,
     "a list item (-) or key cannot begin here", "Begin it on a line of its own, indented as its neighbours."),
    (r"expected ':'", True, "this line is not complete: a key is followed by a colon and a space",
     "Write `key: value`, or `- value` for an item of a list."),
    (r"scanning an alias", True, "a * at the beginning of a value is a YAML alias, and a name must follow it",
     'If this is a pattern, quote it: "*".'),
    (r"scanning an anchor", True, "a & at the beginning of a value is a YAML anchor, and a name must follow it",
     "Quote the text if the & belongs to it."),
    (r"tag", True, "a ! at the beginning of a value is a YAML tag, and this is none", "Quote the text."),
    (r"block scalar", False, "after | or > only an indicator (+, -, a digit) may stand, then a new line",
     "Begin the text on the next line, or quote it."),
    (r"cannot start any token", False, "a value cannot begin with this sign", _QUOTE_SIGN),
    (r"block collection", False, "this line does not fit the list above it: an item that begins with - is expected",
     _INDENT),
    (r"block mapping.*(expected key|<block end>)", False, "this does not fit what stands before it: a key is expected",
     _INDENT + " After a closing quote or bracket, nothing may follow."),
    (r"document start", False, "what follows here is outside of the definition",
     "Check this line's indentation, and for a stray `...` or `%` above."),
    (r"node content", False, "a value is expected here", "Write one, or quote the text if this sign belongs to it."),
    (r"incompatible|directive", False, "the line that begins with % is no directive that is known", "Remove it."),
)  # fmt: skip


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, file: str, open_marks: list[Any]) -> Problem:
    said = f"{error.context or ''} {error.problem or ''}"
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem(file, "", "the file is not valid YAML", escaped(said))
    lines = _LINE_BREAK.split(text)
    begun = lines[mark.line][: mark.column + 1] if mark.line < len(lines) else ""
    if begun and not begun.strip() and "\t" in begun:
        where = Position(file, mark.line + 1, begun.index("\t") + 1)
        return Problem(where, "", "a tab is used to indent", "YAML allows spaces only.", "Indent with spaces.")
    if "quoted" not in said and (opened := _unclosed_at_end(mark, lines, open_marks)):
        where = Position(file, opened.line + 1, opened.column + 1)
        return Problem(where, "", "the bracket that opens here is never closed", "", "Close it with ] or }.")
    for pattern, at_begin, what, do in _WORDS:
        if re.search(pattern, said, re.DOTALL):
            at = (error.context_mark or mark) if at_begin else mark
            return Problem(Position(file, at.line + 1, at.column + 1), "", what, "", do)
    return Problem(Position(file, mark.line + 1, mark.column + 1), "", "the file is not valid YAML", escaped(said))


def _unclosed_at_end(mark: Any, lines: list[str], open_marks: list[Any]) -> Any:
    """The innermost bracket that is open when the parser gives up at the end of the file."""
    rest = lines[mark.line :]
    if rest and (rest[0][mark.column :].strip() or any(line.strip() for line in rest[1:])):
        return None
    brackets = [at for at in open_marks if lines[at.line][at.column : at.column + 1] in ("[", "{")]
    return brackets[-1] if brackets else None
