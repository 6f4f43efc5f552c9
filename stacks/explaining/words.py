"""Puts one error into words."""

from __future__ import annotations

import math
import re
from typing import Any

from ..problems import Problem, escaped, listed, shortened, shown
from .choice import EXPECTED, nearest
from .walk import Found, Path, Source, Walk

_BOUNDS = {
    "greater_than": ("greater than", "gt"), "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"), "less_than_equal": ("at most", "le"),
    "multiple_of": ("a multiple of", "multiple_of"),
}  # fmt: skip
_LENGTHS = {
    "string_too_short": ("at least", "min_length"), "string_too_long": ("at most", "max_length"),
    "too_short": ("at least", "min_length"), "too_long": ("at most", "max_length"),
}  # fmt: skip
_YES = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


class Message:
    """Puts one error into words."""

    def __init__(self, found: Found, document: Source, walk: Walk) -> None:
        self.walk = walk
        self.found = found
        self.document = document
        self.raw = document.text(found.path)

    def problem(self) -> Problem:
        """The problem, where it stands in the file."""
        found = self.found
        if found.type == "extra_forbidden":
            return self._unknown_key()
        if found.type == "missing":
            key = shown(str(found.path[-1])) if found.path else "a value"
            where = self.document.position(found.path)  # at the key, where it stands with nothing (null)
            do = found.hint and f"{key}: {found.hint}"
            return Problem(where, self._words(found.path[:-1]), f"{key} is missing", do=do)
        if found.type in ("union_tag_invalid", "union_tag_not_found"):
            return self._kind()
        expected = self._expected()
        if expected and not found.about_key:
            return self._value(f"expected {expected}, got {_got(found.value, self.raw)}", do=self._repair())
        return self._other()

    def _at(self, path: Path, what: str, why: str = "", do: str = "") -> Problem:
        return Problem(self.document.position(path), self._words(path), what, why, do)

    def _value(self, what: str, why: str = "", do: str = "") -> Problem:
        """A problem with a value; one of many lines is shown at its key, where one begins to read it."""
        path = self.found.path
        if self.found.about_key:
            return self._at(path, f"the key {shown(path[-1])}: {what}", why, do)
        if isinstance(self.document.get(path), dict | list):
            return self._at(path, what, why, do)
        return Problem(self.document.value_position(path), self._words(path), what, why, do)

    def _words(self, path: Path) -> str:
        return self.document.path_text(path)

    def _unknown_key(self) -> Problem:
        found = self.found
        key = str(found.path[-1]) if found.path else ""
        parts = []
        if found.owners:
            keys = found.owners[-1][1]
            if found.typo_of:
                parts.append(f"did you mean {shown(found.typo_of)}?")
            elif moved := self._elsewhere(key):
                parts.append(moved)
            parts.append(f"Keys here: {listed(keys.fields)}." if keys.fields else "No keys belong here.")
        words = self._words(found.path[:-1])
        where = self.document.position(found.path)
        return Problem(where, words, f"unknown key {shown(key)}", "", " ".join(parts))

    def _elsewhere(self, key: str) -> str:
        """Whether an unknown key belongs one level up or down: the usual slip of indentation."""
        *above, (_, here) = self.found.owners
        for name, inside in here.below(self.walk).items():
            if key in inside:
                return f"it belongs under {shown(name)}: check the indentation."
        for path, keys in reversed(above):
            if key in keys.fields:
                place = self._words(path)
                return f"it belongs to {place}: check the indentation." if place else "it belongs to the top level."
        return ""

    def _kind(self) -> Problem:
        found, schema = self.found, self.found.schema or {}
        key = str(found.context.get("discriminator", "")).strip("'") or "kind"
        if schema.get("type") == "tagged-union":
            choices = [str(tag) for tag in schema["choices"]]
        else:
            choices = re.findall(r"'([^']*)'", str(found.context.get("expected_tags", "")))
        if isinstance(discriminator := schema.get("discriminator"), str | list):
            key = discriminator if isinstance(discriminator, str) else key
        else:  # a function looks at the value as a whole, and its name means nothing to anybody
            return self._value(f"{_got(found.value, self.raw)} does not fit here", f"Possible are: {listed(choices)}.")
        one_of = f"{key} is one of: {listed(choices)}."
        here = found.value if isinstance(found.value, dict) else {}
        if found.type == "union_tag_not_found":
            typo = nearest(key, [name for name in here if isinstance(name, str)])
            if typo:
                what = f"unknown key {shown(typo)}"
                where = self.document.position((*found.path, typo))
                return Problem(where, self._words(found.path), what, "", f"did you mean {shown(key)}? {one_of}")
            return self._at(found.path, f"{shown(key)} is missing", do=one_of)
        value = here.get(key, found.context.get("tag"))
        near = nearest(value, choices)
        path = (*found.path, key)
        where = self.document.value_position(path)
        what = f"unknown {key} {shown(value)}"
        return Problem(where, self._words(path), what, "", (f"did you mean {shown(near)}? " if near else "") + one_of)

    def _choices(self, found: Found) -> list[Any]:
        schema = found.schema or {}
        if schema.get("type") == "literal":
            return [getattr(choice, "value", choice) for choice in schema["expected"]]
        if schema.get("type") == "enum":
            return [member.value for member in schema["members"]]
        if found.type in ("literal_error", "enum"):
            return re.findall(r"'([^']*)'", str(found.context.get("expected", "")))
        return []

    def _expected(self) -> str:
        phrases: list[str] = []
        choices: list[Any] = []
        for each in self._all(self.found):
            here = self._choices(each)
            choices += [choice for choice in here if choice not in choices]
            phrase = "" if here else EXPECTED.get(each.type, "")
            if phrase and phrase not in phrases:
                phrases.append(phrase)
        if choices:
            phrases.insert(0, f"{'one of: ' if len(choices) > 1 else ''}{listed(choices)}")
        return ", or ".join(phrases) if choices else " or ".join(phrases)

    def _all(self, found: Found) -> list[Found]:
        return [part for each in found.alternatives for part in self._all(each)] or [found]

    def _repair(self) -> str:
        """What to write instead, where that can be told from the value."""
        value, parts = self.found.value, self._all(self.found)
        types = {part.type for part in parts}
        choices = [choice for part in parts for choice in self._choices(part)]
        if near := nearest(value, choices):
            return f"did you mean {shown(near)}?"
        if value is None:
            return f"Write a value, or remove the line. {self.found.hint}".strip()
        written = self.raw if self.raw is not None else shown(value)
        if isinstance(value, bool | int | float) and ("string_type" in types or written in choices):
            return f'quote it: "{escaped(shortened(written))}"'
        if isinstance(value, str):
            if types & {"bool_type", "bool_parsing"} and value.lower() in _YES:
                return f"write {_YES[value.lower()]}"
            if types & {"bool_type", "bool_parsing"} and value.lower() in ("true", "false"):
                return f"write it without quotes: {value.lower()}"
            if types & {"int_type", "int_parsing"} and re.fullmatch(r"[-+]?[0-9]{1,30}", value):
                return f"write it without quotes: {value}"
            if types & {"float_type", "float_parsing"} and re.fullmatch(r"[-+]?[0-9]{1,30}(\.[0-9]{0,30})?", value):
                return f"write it without quotes: {value}"
        if types & {"list_type", "tuple_type"} and isinstance(value, str | int | float):
            return f"write it as a list: [{shown(value) if isinstance(value, str) else self.raw}]"
        return self.found.hint

    def _other(self) -> Problem:
        found, context, value = self.found, self.found.context, self.found.value
        got = _got(value, self.raw)
        if found.type in _BOUNDS:
            words, bound = _BOUNDS[found.type]
            return self._value(f"must be {words} {context.get(bound)}, got {got}", found.hint)
        if found.type in _LENGTHS:
            words, bound = _LENGTHS[found.type]
            unit = "character" if found.type.startswith("string") else "entry"
            return self._value(f"must have {words} {_count(context.get(bound), unit)}, got {got}", found.hint)
        if found.type == "string_pattern_mismatch":
            pattern = str(context.get("pattern", ""))
            why = found.hint or f"It must match the pattern {shortened(pattern, 200)}"
            what = "it" if found.about_key else shown(value)
            return self._value(f"{what} does not have the right form", why)
        if found.type in ("value_error", "assertion_error"):
            what, _, why = re.sub(r"\A(Value|Assertion) error, ", "", found.message).strip().partition("\n")
            return self._value(what or "the value is not valid", why)
        what = re.sub(r"\A(?:Input|Value|String|URL) (?=should)", "", found.message).replace("should", "must", 1)
        return self._value(f"{what[:1].lower()}{what[1:]}, got {got}", found.hint)


def _got(value: Any, raw: str | None) -> str:
    if value is None:
        return "nothing (null)" if raw else "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        known = raw is not None and not (isinstance(value, float) and not math.isfinite(value))
        return f"the number {escaped(shortened(raw or '')) if known else value}"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    if isinstance(value, list | tuple):
        return f"a list of {_count(len(value), 'entry')}" if value else "an empty list"
    return "an empty mapping" if value == {} else "a mapping" if isinstance(value, dict) else shown(value)


def _count(number: Any, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
