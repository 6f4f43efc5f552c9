"""Where each field of a config.pbtxt stands, and what in its text is no field: names and places, never values.

Protobuf's own parser reads the values; it keeps no line numbers, and stops at the first thing that is wrong.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .words import said_enum_value, said_field

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<broken>["'])
      | (?P<word>[A-Za-z0-9_.+-]+)
      | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_NO_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\[^abfnrtv\\?'\"0-7xXuU])")
_DIGITS = 100
"""More than any number of an enumeration has, and Python reads no more than a few thousand."""
_ENOUGH = 50
"""Slips after which nobody wants more."""
_OPENING = {"{": "}", "<": ">", "[": "]"}


@dataclass(frozen=True)
class Token:
    """A piece of the text; lines and columns begin at 1."""

    kind: str
    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Slip:
    """Something in the text that Triton cannot take."""

    line: int
    what: str
    why: str = ""
    do: str = ""


@dataclass
class Scan:
    """What was seen, up to the first place where the text is none of the format's."""

    lines: dict[str, int] = field(default_factory=dict)
    """Line of each field by its path: `input[0].dims[1]`, `parameters["key"].string_value`."""
    slips: list[Slip] = field(default_factory=list)
    """What protobuf's parser refuses as well."""
    strict: list[Slip] = field(default_factory=list)
    """What protobuf's Python parser takes and the C++ parser within Triton does not."""


class _LostError(Exception):
    """The text is not of the format; protobuf's parser says how."""


def scan(text: str, message: Any) -> Scan:
    """Return what is where in the text of a message, which is given by its descriptor."""
    walk = _Walk(list(_tokens(text)))
    with suppress(_LostError):
        walk.fields(message, "", None)
    return walk.seen


def _tokens(text: str) -> Iterator[Token]:
    line, start = 1, 0
    for match in _TOKEN.finditer(text):
        kind, piece = str(match.lastgroup), match[0]
        if kind == "broken":  # no text has its end, and to look for that after each mark would take for ever
            yield Token("mark", piece, line, match.start() - start + 1)
            return
        if kind != "space":
            yield Token(kind, piece, line, match.start() - start + 1)
        if newlines := piece.count("\n"):
            line += newlines
            start = match.start() + piece.rindex("\n") + 1


class _Walk:
    """Goes through the tokens beside the descriptors of what they stand for."""

    def __init__(self, tokens: list[Token]) -> None:
        self.seen = Scan()
        self._tokens = tokens
        self._next = 0

    def fields(self, message: Any, prefix: str, closing: str | None) -> dict[str, str]:
        """Go through the fields of one message up to its closing mark; return those that are scalars, as written."""
        counts: dict[str, int] = {}
        scalars: dict[str, str] = {}
        while (token := self._peek()) is not None and token.text != closing:
            if token.text in ",;":
                self._take()
                continue
            if token.kind != "word":
                raise _LostError
            self._take()
            known = message.fields_by_name.get(token.text)
            if known is None:
                self._slip(Slip(token.line, *said_field(token.text, message)))
                self._skip_value()
                continue
            path = f"{prefix}.{token.text}" if prefix else token.text
            if self._looking_at(":"):
                self._take()
            if not _repeated(known):
                scalars[token.text] = self._value(known, path, token)
            elif self._looking_at("["):
                self._list(known, path, token, counts)
            else:
                self._element(known, path, token, counts)
        if closing is not None:
            self._take()  # lost when the text ends before
        return scalars

    def _list(self, known: Any, path: str, name: Token, counts: dict[str, int]) -> None:
        self.seen.lines.setdefault(path, name.line)
        self._take()
        while not self._looking_at("]"):
            self._element(known, path, self._peek() or name, counts)
            if not self._looking_at("]") and self._take().text != ",":
                raise _LostError
        self._take()

    def _element(self, known: Any, path: str, at: Token, counts: dict[str, int]) -> None:
        number = counts.get(path, 0)
        counts[path] = number + 1
        self.seen.lines.setdefault(path, at.line)
        self._value(known, f"{path}[{number}]", at)

    def _value(self, known: Any, path: str, at: Token) -> str:
        """Go through one value, and return it as written when it is a scalar."""
        token = self._take()
        if known.message_type is None:
            self.seen.lines[path] = at.line
            self._scalar(known, token)
            return token.text
        if token.text not in ("{", "<"):
            self._slip(Slip(token.line, *_not_a_message(known, token)))
            raise _LostError
        if known.message_type.GetOptions().map_entry:
            self._map_entry(known.message_type, path.rpartition("[")[0], at, _OPENING[token.text])
        else:
            self.seen.lines[path] = at.line
            self.fields(known.message_type, path, _OPENING[token.text])
        return ""

    def _map_entry(self, entry: Any, path: str, at: Token, closing: str) -> None:
        """Go through an entry of a map, whose path has its key, which may stand anywhere in it."""
        outer, self.seen.lines = self.seen.lines, {"": at.line}
        try:
            key = self.fields(entry, "", closing).get("key", "").strip("\"'")
        finally:
            inner, self.seen.lines = self.seen.lines, outer
        for below, line in inner.items():
            rest = below.removeprefix("value").removeprefix(".")
            outer.setdefault(f'{path}["{key}"]{"." if rest else ""}{rest}', line)

    def _slip(self, slip: Slip) -> None:
        self.seen.slips.append(slip)
        if len(self.seen.slips) >= _ENOUGH:
            raise _LostError

    def _scalar(self, known: Any, token: Token) -> None:
        if token.kind == "mark":
            raise _LostError
        while token.kind == "string" and (more := self._peek()) is not None and more.kind == "string":
            self._take()
        if known.enum_type is not None:
            self._enum_value(known, token)
        elif token.kind == "string" and (wrong := _NO_ESCAPE.search(token.text)):
            self.seen.strict.append(
                Slip(token.line, f"{wrong[1]} in a text is no escape sequence", do=r"write \\ for a backslash")
            )
        elif _whole(known) and token.kind == "word" and token.text != "-" and not _INTEGER.fullmatch(token.text):
            self.seen.strict.append(
                Slip(token.line, f"{token.text} is no whole number as Triton reads them", do="write digits only")
            )

    def _enum_value(self, known: Any, token: Token) -> None:
        if _INTEGER.fullmatch(token.text):
            # Both parsers take any number; what Triton makes of one that nobody knows is different everywhere.
            base = 16 if "x" in token.text.lower() else 10
            if len(token.text) > _DIGITS or int(token.text, base) not in known.enum_type.values_by_number:
                self.seen.strict.append(Slip(token.line, *said_enum_value(token.text, known)))
        elif token.text not in known.enum_type.values_by_name:
            self._slip(Slip(token.line, *said_enum_value(token.text, known)))

    def _skip_value(self) -> None:
        """Go past the value of a field that nobody knows, whatever is within."""
        if self._looking_at(":"):
            self._take()
        token = self._take()
        if token.kind == "mark" and token.text not in _OPENING:
            raise _LostError
        while token.kind == "string" and (more := self._peek()) is not None and more.kind == "string":
            self._take()
        waiting = [_OPENING[token.text]] if token.kind == "mark" else []
        while waiting:
            token = self._take()
            if token.text == waiting[-1]:
                waiting.pop()
            elif token.kind == "mark" and token.text in _OPENING:
                waiting.append(_OPENING[token.text])

    def _peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _looking_at(self, text: str) -> bool:
        token = self._peek()
        return token is not None and token.text == text

    def _take(self) -> Token:
        token = self._peek()
        if token is None:
            raise _LostError
        self._next += 1
        return token


def _repeated(known: Any) -> bool:
    return bool(known.is_repeated if hasattr(known, "is_repeated") else known.label == known.LABEL_REPEATED)


def _whole(known: Any) -> bool:
    return known.cpp_type in (known.CPPTYPE_INT32, known.CPPTYPE_INT64, known.CPPTYPE_UINT32, known.CPPTYPE_UINT64)


def _not_a_message(known: Any, token: Token) -> tuple[str, str, str]:
    inner = known.message_type.fields
    fits = [
        one.name
        for one in inner
        if (one.enum_type is not None and token.text in one.enum_type.values_by_name)
        or (token.kind == "string" and one.message_type is None and one.cpp_type == one.CPPTYPE_STRING)
    ]
    example = f"{fits[0]}: {token.text}" if len(fits) == 1 else "…"
    names = ", ".join(one.name for one in inner)
    return (
        f"'{known.name}' holds fields of its own, not a value",
        f"its fields are: {names}",
        f"write {known.name} {{ {example} }}",
    )
