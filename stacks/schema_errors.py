"""Says what pydantic found wrong in words for the person who wrote the file, at the line where it stands.

Pydantic names a place by `loc`, in which the labels of union branches stand among the keys. The core schema, from which
pydantic made those labels, is walked beside `loc`, so that each part of it is known for what it is.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError

from stacks.load import Document
from stacks.problems import Problem, escaped, in_order, listed, readable_path, shortened, shown

Path = tuple[str | int, ...]
Schema = dict[str, Any]

_EXPECTED = {
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "decimal_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text", "path_type": "text (a path)", "url_type": "text (a URL)", "bytes_type": "text",
    "bool_type": "true or false", "bool_parsing": "true or false",
    "list_type": "a list", "tuple_type": "a list", "set_type": "a list", "frozen_set_type": "a list",
    "dict_type": "a mapping (key: value)", "mapping_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)", "model_attributes_type": "a mapping (key: value)",
    "dataclass_type": "a mapping (key: value)", "none_required": "nothing (null)",
}  # fmt: skip
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
_CONTAINERS = ("union", "tagged-union", "dict", "list", "tuple", "set", "frozenset")
_BY_VALUE = ("literal_error", "enum", "is_instance_of")


@dataclass(frozen=True)
class _Branch:
    """A union on the way to an error: the `loc` and the path at which it stands, and the branch that was tried."""

    loc: Path
    path: Path
    label: str


@dataclass(frozen=True)
class _Found:
    """One of pydantic's errors and what the walk along its `loc` has shown."""

    type: str
    message: str
    value: Any
    context: dict[str, Any]
    path: Path
    schema: Schema | None
    about_key: bool
    branches: tuple[_Branch, ...]
    owners: tuple[tuple[Path, _Keys], ...]
    hint: str
    alternatives: tuple[_Found, ...] = ()
    typo_of: str = ""


def problems_from(
    error: ValidationError, document: Document, model: type[BaseModel], base: Sequence[str | int] = ()
) -> list[Problem]:
    """Every mistake that `model` finds in `document`, one problem each, in the order of the file.

    `base` is the path of the validated part, when it was not the whole document.
    """
    walk = _Walk(model.__pydantic_core_schema__)
    found = [walk.find(details, tuple(base)) for details in error.errors(include_url=False)]
    problems = [_Message(each, document, walk).problem() for each in _one_per_mistake(found, document, 0)]
    return in_order(dict.fromkeys(problems))


# ---- the walk along loc ----


@dataclass(frozen=True)
class _Keys:
    """What may stand in a model's mapping: schemas by alias."""

    fields: dict[str, Schema]

    def below(self, walk: _Walk) -> dict[str, list[str]]:
        """For each key that holds a model itself: the keys in there."""
        parts = {name: walk.unwrap(part.get("schema")) for name, part in self.fields.items()}
        return {name: list(walk.keys(part).fields) for name, part in parts.items() if part and _is_model(part)}


def _is_model(schema: Schema) -> bool:
    return schema.get("type") in ("model", "dataclass", "typed-dict", "model-fields")


class _Walk:
    """Knows one model's core schema, and follows locations through it."""

    def __init__(self, schema: Any) -> None:
        self.root: Schema = schema
        self.named: dict[str, Schema] = {}

    def find(self, details: Any, base: Path) -> _Found:
        """Follow one error's location."""
        loc: Path = tuple(details["loc"])
        path, branches, owners, about_key = base, [], [], False
        schema: Schema | None = self.unwrap(self.root)
        hint = ""
        for at, step in enumerate(loc):
            if schema is None:  # a validator of its own kind: what is left can only be keys
                path = (*path, step)
                continue
            kind = schema["type"]
            if kind == "tagged-union":
                schema = self.unwrap(next((s for tag, s in schema["choices"].items() if str(tag) == str(step)), None))
            elif kind == "union":
                branches.append(_Branch(loc[:at], path, str(step)))
                schema = self._branch(schema, str(step))
            elif _is_model(schema):
                keys = self.keys(schema)
                owners.append((path, keys))
                path = (*path, step)
                part = keys.fields.get(str(step))
                hint = _hint(part)
                schema = self.unwrap(part.get("schema")) if part else None
            elif kind == "dict" and loc[at + 1 :] == ("[key]",):
                path, about_key, schema = (*path, step), True, self.unwrap(schema.get("keys_schema"))
                break
            else:
                path = (*path, step)
                inside = schema.get("values_schema") if kind == "dict" else schema.get("items_schema")
                if isinstance(inside, list):  # a tuple's
                    inside = inside[min(int(step), len(inside) - 1)] if inside and isinstance(step, int) else None
                schema = self.unwrap(inside)
            hint = _hint(schema) or hint
        return _Found(
            details["type"], details["msg"], details["input"], details.get("ctx") or {}, path, schema, about_key,
            tuple(branches), tuple(owners), hint,
        )  # fmt: skip

    def keys(self, schema: Schema) -> _Keys:
        """The keys of a model's mapping, as they are written in YAML."""
        inner = schema
        while "fields" not in inner and isinstance(inner.get("schema"), dict):
            inner = self._resolve(inner["schema"])
        fields = inner.get("fields", {})
        named = fields.items() if isinstance(fields, dict) else [(part.get("name", ""), part) for part in fields]
        return _Keys({_alias(name, part): part for name, part in named})

    def unwrap(self, wrapped: Any) -> Schema | None:
        """The schema under defaults, nullables, validators and references: the one that adds to `loc`."""
        for _ in range(1_000):  # a schema can refer to itself through nothing but wrappers
            if not isinstance(wrapped, dict):
                return None
            schema = self._resolve(wrapped)
            kind = schema["type"]
            if kind == "model" and schema.get("root_model"):
                wrapped = schema["schema"]
            elif kind == "union" and len(schema["choices"]) == 1:
                wrapped = _choice(schema["choices"][0])[0]
            elif kind in _CONTAINERS or _is_model(schema):
                return schema
            elif kind == "chain":
                wrapped = schema["steps"][0]
            else:
                inner = schema.get("schema") or schema.get("strict_schema") or schema.get("python_schema")
                if inner is None:
                    return schema
                wrapped = inner
        return None

    def _resolve(self, schema: Schema) -> Schema:
        while schema.get("type") in ("definitions", "definition-ref"):
            if schema["type"] == "definitions":
                self.named.update({part["ref"]: part for part in schema["definitions"]})
                schema = schema["schema"]
            else:
                schema = self.named.get(schema["schema_ref"], {"type": "any"})
        return schema

    def _branch(self, union: Schema, label: str) -> Schema | None:
        best, likeness = None, 0
        for choice in union["choices"]:
            schema, own = _choice(choice)
            inner = self.unwrap(schema)
            if inner is None:
                continue
            if own is not None:
                fits = 4 if own == label else 0
            elif inner["type"] == "model":
                name = re.escape(inner["cls"].__name__)
                fits = 3 if re.search(rf"(?<![\w.]){name}(?![\w.])", label) else 0
            else:
                fits = 2 if label.startswith(inner["type"]) else 1 if f"{inner['type']}[" in label else 0
            if fits > likeness:
                best, likeness = inner, fits
        return best


def _choice(choice: Any) -> tuple[Schema, str | None]:
    return (choice[0], choice[1]) if isinstance(choice, tuple) else (choice, None)


def _alias(name: str, part: Schema) -> str:
    alias = part.get("validation_alias", name)
    while isinstance(alias, list):  # a choice of aliases, or a path of them: pydantic shows the first
        alias = alias[0] if alias else name
    return str(alias)


def _hint(schema: Schema | None) -> str:
    meta = (schema or {}).get("metadata") or {}
    updates, extra = meta.get("pydantic_js_updates"), meta.get("pydantic_js_extra")
    hints = [part.get(key) for part, key in ((extra, "hint"), (updates, "hint"), (updates, "description"))
             if isinstance(part, dict)]  # fmt: skip
    return next((hint for hint in hints if isinstance(hint, str) and hint), "")


# ---- one mistake, one problem ----


def _one_per_mistake(found: list[_Found], document: Document, level: int) -> list[_Found]:
    """Keep of every union the branch that the author most likely meant, and of a mistyped key one error of two."""
    kept: list[_Found] = []
    unions: dict[Path, dict[str, list[_Found]]] = {}
    for each in found:
        if len(each.branches) > level:
            branch = each.branches[level]
            unions.setdefault(branch.loc, {}).setdefault(branch.label, []).append(each)
        else:
            kept.append(each)
    for groups in unions.values():
        tried: list[list[_Found]] = [_one_per_mistake(group, document, level + 1) for group in groups.values()]
        at = next(iter(groups.values()))[0].branches[level].path
        if all(len(group) == 1 and group[0].path == at and _is_choice(group[0]) for group in tried):
            first = tried[0][0]
            kept.append(replace(first, alternatives=tuple(group[0] for group in tried)) if len(tried) > 1 else first)
        elif markers := _markers_of_all(tried, at):
            kept.append(replace(markers[0], alternatives=tuple(markers)))
        else:
            nearest: list[_Found] = min(tried, key=partial(_distance, union=at))
            kept += nearest
    return _without_echoes(kept, document)


def _is_choice(found: _Found) -> bool:
    return found.type in _EXPECTED or found.type in _BY_VALUE or bool(found.alternatives)


def _markers_of_all(tried: list[list[_Found]], union: Path) -> list[_Found]:
    """The errors of a value, such as `kind`, by which every branch says that it was not meant."""
    fitting = [group for group in tried if not any(each.path == union and _is_choice(each) for each in group)]
    markers = [[each for each in group if each.type in _BY_VALUE and each.path[:-1] == union] for group in fitting]
    shared = set.intersection(*({each.path for each in group} for group in markers)) if len(markers) > 1 else set()
    return [each for group in markers for each in group if each.path in shared] if len(shared) == 1 else []


def _is_marker(found: _Found) -> bool:
    """Whether a value is wrong that could only be one: such a field exists to tell branches apart."""
    return found.type == "literal_error" and len((found.schema or {}).get("expected", ())) == 1


def _distance(group: list[_Found], union: Path) -> tuple[bool, int, int, int]:
    """How far a branch is from what was written: wrong kind of value, wrong marker value, how many errors, how deep."""
    wrong_kind = any(each.path == union and _is_choice(each) for each in group)
    markers = sum(_is_marker(each) and len(each.path) == len(union) + 1 for each in group)
    weight = sum(2 if each.type == "extra_forbidden" and not each.typo_of else 1 for each in group)
    return wrong_kind, markers, weight, -max(len(each.path) for each in group)


def _without_echoes(found: list[_Found], document: Document) -> list[_Found]:
    """Name for each unknown key the one it was meant to be, and drop the error that this one is missing."""
    missing = {each.path for each in found if each.type == "missing"}
    explained: set[Path] = set()
    out = []
    for each in found:
        if each.type == "extra_forbidden" and each.owners and not each.typo_of:
            parent, keys = each.owners[-1]
            present = document.get(parent)
            free = [key for key in keys.fields if not (isinstance(present, dict) and key in present)]
            lacking = [key for key in free if (*parent, key) in missing and (*parent, key) not in explained]
            near = _nearest(each.path[-1], lacking) or _nearest(each.path[-1], free)
            near = near or _nearest(each.path[-1], list(keys.fields))
            if near:
                explained.add((*parent, near))
                each = replace(each, typo_of=near)
        out.append(each)
    return [each for each in out if each.type != "missing" or each.path not in explained]


def _nearest(word: Any, choices: Sequence[Any]) -> str:
    """The choice that `word` was meant to be, or an empty text; spelling variants (idle_seconds) count as the same."""
    if not isinstance(word, str) or len(word) > 200:
        return ""
    plain = {_folded(choice): choice for choice in reversed(choices) if isinstance(choice, str)}
    near = difflib.get_close_matches(_folded(word), list(plain), n=1, cutoff=0.6)
    return plain[near[0]] if near else ""


def _folded(word: str) -> str:
    return re.sub(r"[_\-\s]", "", word).lower()


# ---- words ----


class _Message:
    """Puts one error into words."""

    def __init__(self, found: _Found, document: Document, walk: _Walk) -> None:
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
            return self._at(found.path[:-1], f"{key} is missing", do=found.hint and f"{key}: {found.hint}")
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
        return readable_path(self.document.tree, path)

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
            typo = _nearest(key, [name for name in here if isinstance(name, str)])
            if typo:
                what = f"unknown key {shown(typo)}"
                where = self.document.position((*found.path, typo))
                return Problem(where, self._words(found.path), what, "", f"did you mean {shown(key)}? {one_of}")
            return self._at(found.path, f"{shown(key)} is missing", do=one_of)
        value = here.get(key, found.context.get("tag"))
        near = _nearest(value, choices)
        path = (*found.path, key)
        where = self.document.value_position(path)
        what = f"unknown {key} {shown(value)}"
        return Problem(where, self._words(path), what, "", (f"did you mean {shown(near)}? " if near else "") + one_of)

    def _choices(self, found: _Found) -> list[Any]:
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
            phrase = "" if here else _EXPECTED.get(each.type, "")
            if phrase and phrase not in phrases:
                phrases.append(phrase)
        if choices:
            phrases.insert(0, f"{'one of: ' if len(choices) > 1 else ''}{listed(choices)}")
        return ", or ".join(phrases) if choices else " or ".join(phrases)

    def _all(self, found: _Found) -> list[_Found]:
        return [part for each in found.alternatives for part in self._all(each)] or [found]

    def _repair(self) -> str:
        """What to write instead, where that can be told from the value."""
        value, parts = self.found.value, self._all(self.found)
        types = {part.type for part in parts}
        choices = [choice for part in parts for choice in self._choices(part)]
        if near := _nearest(value, choices):
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
    if isinstance(value, list):
        return f"a list of {_count(len(value), 'entry')}" if value else "an empty list"
    return "an empty mapping" if value == {} else "a mapping" if isinstance(value, dict) else shown(value)


def _count(number: Any, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
