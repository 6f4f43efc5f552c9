"""Values as YAML for people: keys in the order of the arguments, each explained where it stands first."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from components import EnvironmentArgs
from stacks.model_keys import tag_values

from .arguments import Argument, arguments, chosen, is_list, tag

Values = dict[str, Any]
Classes = tuple[type, ...]
Samples = Mapping[tuple[type, str], Any]

_WIDTH = 120
_FLOW_WIDTH = 100
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@+-]*")
# Helm's YAML reads these, in any case, as truth values, nothing or numbers.
_NOT_PLAIN = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def values_text(values: Values, heading: str, samples: Samples | None = None) -> str:
    """Return values as the text of a file. With samples, keys that are not set stand there as comments."""
    lines = [*_comment(heading, 0), "", *_YamlWriter(samples).section(EnvironmentArgs, values, 0)]
    return "\n".join(lines).rstrip() + "\n"


def samples_of(*several: Values) -> dict[tuple[type, str], Any]:
    """Return for each argument of each class the first value that it has in some values."""
    found: dict[tuple[type, str], Any] = {}
    for values in several:
        for owner, key, value in _walk(EnvironmentArgs, values):
            if value not in (None, [], {}):
                found.setdefault((owner, key), value)
    return found


def scalar(value: Any) -> str:
    """Return a text, a whole number or a truth value as YAML 1.1 and 1.2 both read it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN:
        return value
    if '"' in value and "'" not in value and value.isprintable():
        return f"'{value}'"
    return '"' + "".join(_in_quotes(character) for character in value) + '"'


def _in_quotes(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character == "\n":
        return "\\n"
    return character if character.isprintable() else f"\\U{ord(character):08X}"


def flow(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


class _YamlWriter:
    """Writes values; remembers which classes have been explained."""

    def __init__(self, samples: Samples | None) -> None:
        self.samples = samples
        self.explained: set[type] = set()

    def section(self, owner: type, values: Values, indent: int, kinds: Classes = ()) -> Iterator[str]:
        """Yield the lines of a class's arguments; `kinds` are those that could stand here."""
        explain = owner not in self.explained
        self.explained.add(owner)
        for number, argument in enumerate(arguments(owner)):
            there = argument.key in values
            if not there and not (explain and self.samples is not None):
                continue
            if indent == 0 and number:
                yield ""
            if explain and argument.about:
                yield from _comment(argument.about + _alternatives(argument, kinds, values), indent)
            if there:
                yield from self.entry(argument, values[argument.key], indent)
            else:
                yield from self.sample(owner, argument, indent)

    def sample(self, owner: type, argument: Argument, indent: int) -> Iterator[str]:
        """Yield a key that is not set, as a comment, with a value that it has elsewhere."""
        value = (self.samples or {}).get((owner, argument.key))
        lines = _YamlWriter(None).entry(argument, value, 0)
        yield from (f"{' ' * indent}# {line}" for line in lines if not line.lstrip().startswith("#"))

    def entry(self, argument: Argument, value: Any, indent: int) -> Iterator[str]:
        """Yield a key and its value."""
        yield from self.value(f"{' ' * indent}{scalar(argument.key)}:", argument.classes, value, indent)

    def value(self, key: str, kinds: Classes, value: Any, indent: int) -> Iterator[str]:
        """Yield a value behind its key: on the same line where that reads well."""
        if not (isinstance(value, dict | list) and value) or self.short(kinds, value, len(key)):
            yield f"{key} {flow(value)}"
        elif isinstance(value, list):
            yield key
            for item in value:
                yield from self.item(kinds, item, indent + 2)
        else:
            yield key
            yield from self.mapping(kinds, value, indent + 2)

    def short(self, kinds: Classes, value: Any, width: int) -> bool:
        """Say whether a mapping or list fits on a line, and has nothing to be explained."""
        if width + 1 + len(flow(value)) > _FLOW_WIDTH:
            return False
        if not kinds:
            return not isinstance(value, list) or not any(isinstance(item, dict | list) for item in value)
        inner = value.values() if isinstance(value, dict) else [None, [None]]
        if any(isinstance(item, dict | list) for item in inner):
            return False
        return chosen(kinds, value) in self.explained

    def item(self, kinds: Classes, item: Any, indent: int) -> Iterator[str]:
        """Yield an item of a list."""
        dash = " " * indent + "- "
        if not (isinstance(item, dict | list) and item) or self.short(kinds, item, len(dash)):
            yield f"{dash}{flow(item)}"
            return
        if isinstance(item, list):
            lines = [line for inner in item for line in self.item(kinds, inner, indent + 2)]
        else:
            lines = list(self.mapping(kinds, item, indent + 2))
        first = next(number for number, line in enumerate(lines) if not line.lstrip().startswith("#"))
        yield from (line[2:] for line in lines[:first])  # what explains the first key stands before the dash
        yield dash + lines[first][indent + 2 :]
        yield from lines[first + 1 :]

    def mapping(self, kinds: Classes, value: Values, indent: int) -> Iterator[str]:
        """Yield the keys of a mapping."""
        if kinds:
            yield from self.section(chosen(kinds, value), value, indent, kinds)
            return
        for key, item in value.items():
            yield from self.value(f"{' ' * indent}{scalar(key)}:", (), item, indent)


def _alternatives(argument: Argument, kinds: Classes, values: Values) -> str:
    """Return what else the tag of a choice could say."""
    if len(kinds) < 2 or argument.key != tag(kinds):
        return ""
    others = [each for kind in kinds for each in tag_values(kind, argument.key) if each != values[argument.key]]
    return f" Otherwise: {', '.join(others)}."


def _comment(text: str, indent: int) -> Iterator[str]:
    for paragraph in text.split("\n"):
        for line in textwrap.wrap(paragraph, _WIDTH - indent - 2, break_on_hyphens=False) or [""]:
            yield f"{' ' * indent}# {line}".rstrip()


def _walk(owner: type, values: Values) -> Iterator[tuple[type, str, Any]]:
    for argument in arguments(owner):
        value = values.get(argument.key)
        yield owner, argument.key, value
        if argument.classes and value:
            for each in value if is_list(argument.kind) else [value]:
                yield from _walk(chosen(argument.classes, each), each)
