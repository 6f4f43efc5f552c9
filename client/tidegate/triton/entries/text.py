"""Reads and writes config.pbtxt with Triton's own protobuf, and finds the line of every field."""

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...errors import UsageError
from ...findings import Finding, error, errors
from .words import unknown_enum_value, unknown_field

CONFIG = "config.pbtxt"
_BOM = "\ufeff"
_PLACE = re.compile(r"^\d+:\d+ : ")
_TEMPLATE = re.compile(r"^[^#\"']*?(\w+)\s*:\s*\[?\s*(\$\{\w*\})")
"""A field with an unfilled template, as in TensorRT-LLM's configurations. In quotes it is a text."""
_QUOTED_LINE = re.compile(r"^'.*': (?=\S)", re.DOTALL)
_TWO_OF = re.compile(r'Field "(\w+)" is specified along with field "(\w+)"')
_TWICE = re.compile(r'should not have multiple "(\w+)" fields')
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_+-]*")
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_NO_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\[^abfnrtv\\?'\"0-7xXuU])")
_INTEGERS = (
    FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
)  # fmt: skip
_QUOTES = ('"', "'")
_CLOSING = {"{": "}", "<": ">", "[": "]"}
_DIGITS = 100  # More than any enum's number has. Python refuses to parse thousands of digits.
_ENOUGH = 50  # mistakes after which the scan stops


@dataclass(frozen=True)
class ConfigText:
    """A parsed configuration."""

    config: ModelConfig | None  # None if the text cannot be parsed.
    problems: tuple[Finding, ...]  # All of them are errors: Triton would refuse this text.
    lines: Mapping[str, int]
    """The lines of fields, from 1. Paths have the index of list elements, from 0, and the key of map entries:
    `input[0].dims`, `parameters["key"]`."""

    def line(self, path: str) -> int:
        """Return the line of a field, else of the nearest enclosing one, else 1."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)


def read_config(text: str, file: str = CONFIG) -> ConfigText:
    """Parse a text. Its problems have their line in `file`."""
    # Triton's parser refuses a byte order mark. Without it, the other problems can be found too.
    bare = text.removeprefix(_BOM)
    seen = _Scan(bare, file)
    with suppress(text_format.ParseError):
        seen.fields(ModelConfig.DESCRIPTOR)
    problems = list(seen.strict)
    if bare != text:
        what = "the file starts with a byte order mark, which Triton refuses"
        problems.append(error(what, f"{file}:1", do="save it without the mark"))
    config = ModelConfig()
    try:
        with warnings.catch_warnings(action="ignore"):  # protobuf warns about invalid escape sequences
            text_format.Parse(bare, config)
    except (text_format.ParseError, ValueError, RecursionError) as failure:
        problems += seen.refused
        problem = _problem(failure, file)
        for number, line in enumerate(bare.splitlines(), 1):
            if found := _TEMPLATE.search(line):
                what = f"the template {found[2]} in {found[1]} is not filled in"
                problems.append(error(what, f"{file}:{number}", do="write the value"))
                problem = problems[-1]
        if not seen.refused and problem.where not in {each.where for each in seen.strict}:
            problems.append(problem)
        config = None
    return ConfigText(config, tuple(dict.fromkeys(problems)), seen.lines)


def parse_config(text: str, where: str = CONFIG) -> ModelConfig:
    """Return the configuration of a text. Raises UsageError for the first problem that Triton would refuse."""
    read = read_config(text, where)
    for problem in errors(read.problems):
        raise UsageError(problem.what, where=problem.where, why=problem.why, do=problem.do)
    return read.config


def config_text(config: ModelConfig) -> str:
    """Return the text of a configuration. It is deterministic: maps are sorted by key."""
    return str(text_format.MessageToString(config, as_utf8=True))


def leaves(message: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path (like in `ConfigText.lines`) and the value of every set field, and set but empty messages."""
    fields = message.ListFields()
    if path and not fields:
        yield path, "{}"
    for field, value in fields:
        name = f"{path}.{field.name}" if path else field.name
        if isinstance(value, Mapping):
            values = [(f'{name}["{key}"]', value[key]) for key in value]
        elif field.is_repeated:
            values = [(f"{name}[{place}]", each) for place, each in enumerate(value)]
        else:
            values = [(name, value)]
        for place, each in values:
            if isinstance(each, Message):
                yield from leaves(each, place)
            else:
                enum = field.enum_type
                yield place, enum.values_by_number[each].name if enum and each in enum.values_by_number else repr(each)


def _problem(failure: Exception, file: str) -> Finding:
    line = getattr(failure, "GetLine", lambda: None)() or 1
    column = getattr(failure, "GetColumn", lambda: None)() or 1
    where = f"{file}:{line}"
    message = _QUOTED_LINE.sub("", _PLACE.sub("", str(failure)))
    if two := _TWO_OF.search(message):
        why = "a model has one scheduler or policy, not two"
        return error(f"'{two[1]}' and '{two[2]}' exclude each other", where, why, "keep one of them")
    if twice := _TWICE.search(message):
        return error(f"'{twice[1]}' appears twice", where, "only one is allowed", "keep one of them")
    return error(f"column {column}: {message}", where, "the text is not in protobuf's text format")


class _Scan:
    """Walks the tokens of a text and their descriptors, for the places of fields and for errors. Protobuf's own parser
    keeps no line numbers, and stops at the first error."""

    def __init__(self, text: str, file: str) -> None:
        self.lines: dict[str, int] = {}
        self.refused: list[Finding] = []  # Protobuf's parser refuses these as well.
        self.strict: list[Finding] = []  # Protobuf's Python parser accepts these, but Triton's C++ parser does not.
        self._file = file
        self._tokens = text_format.Tokenizer(text.split("\n"))

    def fields(self, message: Any, prefix: str = "", closing: str = "") -> dict[str, str]:
        """Walk a message's fields, and return the scalars as written. Raises ParseError."""
        counts: Counter[str] = Counter()
        scalars: dict[str, str] = {}
        while not self._tokens.LookingAt(closing):
            if self._tokens.TryConsume(",") or self._tokens.TryConsume(";"):
                continue
            line, name = self._line(), self._take()
            if not _NAME.fullmatch(name):
                raise self._lost()
            known = message.fields_by_name.get(name)
            if known is None:
                self._refuse(line, *unknown_field(name, message))
                self._skip_value()
                continue
            path = f"{prefix}.{name}" if prefix else name
            self._tokens.TryConsume(":")
            if not known.is_repeated:
                scalars[name] = self._value(known, path, line)
            elif self._tokens.TryConsume("["):
                self.lines.setdefault(path, line)
                while not self._tokens.TryConsume("]"):
                    self._element(known, path, self._line(), counts)
                    self._tokens.TryConsume(",")
            else:
                self._element(known, path, line, counts)
        self._tokens.TryConsume(closing)
        return scalars

    def _element(self, known: Any, path: str, line: int, counts: Counter[str]) -> None:
        self.lines.setdefault(path, line)
        self._value(known, f"{path}[{counts[path]}]", line)
        counts[path] += 1

    def _value(self, known: Any, path: str, line: int) -> str:
        if known.message_type is None:
            self.lines[path] = line
            return self._scalar(known)
        opening, at = self._tokens.token, self._line()
        if opening not in ("{", "<"):
            self._refuse(at, *_not_a_message(known, opening))
            raise self._lost()
        self._take()
        if known.message_type.GetOptions().map_entry:
            self._map_entry(known.message_type, path.rpartition("[")[0], line, _CLOSING[opening])
        else:
            self.lines[path] = line
            self.fields(known.message_type, path, _CLOSING[opening])
        return ""

    def _map_entry(self, entry: Any, path: str, line: int, closing: str) -> None:
        """Walk an entry of a map. Its path has the key, which may be at any place in the entry."""
        outer, self.lines = self.lines, {"": line}
        try:
            key = self.fields(entry, "", closing).get("key", "").strip("\"'")
        finally:
            inner, self.lines = self.lines, outer
        for below, inner_line in inner.items():
            rest = below.removeprefix("value").removeprefix(".")
            outer.setdefault(f'{path}["{key}"]{"." if rest else ""}{rest}', inner_line)

    def _scalar(self, known: Any) -> str:
        line, token = self._line(), self._take()
        if _is_mark(token):
            raise self._lost()
        is_text = token.startswith(_QUOTES)
        while is_text and self._tokens.token.startswith(_QUOTES):  # adjacent texts are one text
            self._take()
        if known.enum_type is not None:
            if not _is_value(token, known.enum_type):
                self._refuse(line, *unknown_enum_value(token, known), also_triton=_INTEGER.fullmatch(token) is not None)
        elif is_text and (wrong := _NO_ESCAPE.search(token)):
            what = f"{wrong[1]} is not a valid escape sequence"
            self.strict.append(error(what, f"{self._file}:{line}", do=r"write \\ for a backslash"))
        elif not is_text and known.cpp_type in _INTEGERS and token != "-" and not _INTEGER.fullmatch(token):
            what = f"Triton does not read {token} as a whole number"
            self.strict.append(error(what, f"{self._file}:{line}", do="write digits only"))
        return token

    def _skip_value(self) -> None:
        self._tokens.TryConsume(":")
        token = self._take()
        if _is_mark(token) and token not in _CLOSING:
            raise self._lost()
        while token.startswith(_QUOTES) and self._tokens.token.startswith(_QUOTES):
            self._take()
        waiting = [_CLOSING[token]] if token in _CLOSING else []
        while waiting:
            token = self._take()
            if token == waiting[-1]:
                waiting.pop()
            elif token in _CLOSING:
                waiting.append(_CLOSING[token])

    def _refuse(self, line: int, what: str, why: str, do: str, *, also_triton: bool = False) -> None:
        found = self.strict if also_triton else self.refused
        found.append(error(what, f"{self._file}:{line}", why, do))
        if len(found) >= _ENOUGH:
            raise self._lost()

    def _take(self) -> str:
        token = self._tokens.token
        if not token or (token.startswith(_QUOTES) and (len(token) == 1 or token[-1] != token[0])):
            raise self._lost()  # the text has ended, or a quoted text has no end
        self._tokens.NextToken()
        return str(token)

    def _line(self) -> int:
        return int(self._lost().GetLine() or 1)

    def _lost(self) -> text_format.ParseError:
        return self._tokens.ParseError("")  # type: ignore[arg-type]  # it takes a text, unlike its stubs


def _is_mark(token: str) -> bool:
    return not (token[0].isalnum() or token[0] in "_+-.\"'")


def _is_value(token: str, enum: Any) -> bool:
    """Return whether a token is a value's name or number. Parsers accept any number, with different results."""
    if not _INTEGER.fullmatch(token):
        return token in enum.values_by_name
    base = 16 if "x" in token.lower() else 10
    return len(token) <= _DIGITS and int(token, base) in enum.values_by_number


def _not_a_message(known: Any, token: str) -> tuple[str, str, str]:
    inner = known.message_type.fields
    fits = [
        one.name
        for one in inner
        if (one.enum_type is not None and token in one.enum_type.values_by_name)
        or (token.startswith(_QUOTES) and one.message_type is None and one.cpp_type == one.CPPTYPE_STRING)
    ]
    example = f"{fits[0]}: {token}" if len(fits) == 1 else "…"
    return (
        f"'{known.name}' contains fields, not a value",
        f"its fields are: {', '.join(one.name for one in inner)}",
        f"write {known.name} {{ {example} }}",
    )
