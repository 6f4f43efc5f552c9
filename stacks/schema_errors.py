"""Says what pydantic found wrong in words for the person who wrote the file, at the line where it stands."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from .load import Document
from .model_keys import Key, Model, bare, branches, hint_of, keys_of
from .problems import Problem, did_you_mean, escaped, in_order, listed, nearest, shortened, shown

Path = tuple[str | int, ...]

_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_LENGTHS = {
    "string_too_short": ("at least", "min_length"),
    "string_too_long": ("at most", "max_length"),
    "too_short": ("at least", "min_length"),
    "too_long": ("at most", "max_length"),
}
_YES = dict.fromkeys(("true", "yes", "on", "y"), "true") | dict.fromkeys(("false", "no", "off", "n"), "false")
_NUMBER = {"int_type": r"[-+]?[0-9]{1,30}", "float_type": r"[-+]?[0-9]{1,30}(\.[0-9]{0,30})?"}


@dataclass(frozen=True)
class _Mistake:
    """One of pydantic's errors, and what the model says of its place."""

    type: str
    message: str
    value: Any
    context: Mapping[str, Any]
    path: Path
    """Without the tags of choices, which pydantic names too."""
    hint: str
    parts: tuple[tuple[Path, Model], ...]
    """The parts of the model on the way, outermost first, with their paths."""
    about_key: bool
    """Whether it is about a key that the author chose, and not about its value."""
    tags: tuple[str, ...]
    """Of a choice whose tag is wrong or missing: all that there are."""
    meant: str = ""
    """The key that a mistyped one was meant to be."""


def problems_from(
    error: ValidationError, document: Document, model: type[BaseModel], base: Sequence[str | int] = ()
) -> list[Problem]:
    """Return every mistake that `model` finds in `document`, one problem each, in the order of the file.

    `base` is the path of the validated part, when it was not the whole document.
    """
    errors = [details for details in error.errors(include_url=False) if not _is_echo(details)]
    mistakes = _mistyped([_mistake(details, model, tuple(base)) for details in errors], document)
    return in_order(dict.fromkeys(_problem(each, document) for each in mistakes))


def _is_echo(details: Any) -> bool:
    """Say whether a list is called too short only because pydantic does not count its faulty items."""
    return details["type"] == "too_short" and bool(len(details["input"]) >= details["ctx"]["min_length"])


def _mistake(details: Any, model: Model, base: Path) -> _Mistake:
    path, parts, hint, about_key = base, [], "", False
    annotation: Any = model
    loc = details["loc"]
    for number, step in enumerate(loc):
        kind = bare(annotation)
        if choice := branches(annotation):
            annotation = choice.get(str(step))
            continue
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            parts.append((path, kind))
            key = keys_of(kind).get(str(step))
            annotation, hint = (key.annotation, _hint(key)) if key else (None, "")
        elif get_origin(kind) is dict and loc[number + 1 :] == ("[key]",):
            annotation, about_key = get_args(kind)[0], True
        else:  # an item of a list, a value of a mapping; a type that pydantic knows and we do not
            annotation = get_args(kind)[get_origin(kind) is dict] if get_args(kind) else None
        path = (*path, step)
        hint = hint_of(annotation) or hint
        if about_key:
            break
    return _Mistake(
        details["type"],
        details["msg"],
        details["input"],
        details.get("ctx") or {},
        path,
        hint,
        tuple(parts),
        about_key,
        tuple(branches(annotation)),
    )


def _hint(key: Key) -> str:
    extra = key.field.json_schema_extra
    said = extra.get("hint") if isinstance(extra, dict) else None
    return hint_of(key.annotation) or str(said or key.field.description or "")


def _mistyped(mistakes: list[_Mistake], document: Document) -> list[_Mistake]:
    """Name for each unknown key the one that it was meant to be, and drop the error that this one is missing."""
    missing = {each.path for each in mistakes if each.type == "missing"}
    explained: set[Path] = set()
    found = []
    for each in mistakes:
        if each.type == "extra_forbidden" and each.parts:
            parent, model = each.parts[-1]
            word, known = str(each.path[-1]), list(keys_of(model))
            present = document.get(parent)
            free = [key for key in known if not (isinstance(present, dict) and key in present)]
            lacking = [key for key in free if (*parent, key) in missing - explained]
            meant = nearest(word, lacking) or nearest(word, known, 1) or nearest(word, free) or nearest(word, known)
            explained.add((*parent, meant))
            each = replace(each, meant=meant)
        found.append(each)
    return [each for each in found if each.type != "missing" or each.path not in explained]


def _problem(mistake: _Mistake, document: Document) -> Problem:
    path = mistake.path
    if mistake.type == "extra_forbidden":
        do = f"{_unknown_key_advice(mistake, document)}{_keys_here(mistake)}"
        return _at_key(document, path, path[:-1], f"unknown key {shown(str(path[-1]))}", do)
    if mistake.type == "missing":
        key = shown(str(path[-1])) if path else "a value"
        return _at_key(document, path, path[:-1], f"{key} is missing", mistake.hint and f"{key}: {mistake.hint}")
    if mistake.type in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_tag(mistake, document)
    if expected := _expected(mistake):
        got = _got(mistake.value, document.text(path))
        return _at_value(mistake, document, f"expected {expected}, got {got}", do=_repair(mistake, document.text(path)))
    return _wrong_value(mistake, document)


def _at_key(document: Document, path: Path, about: Path, what: str, do: str) -> Problem:
    return Problem(document.position(path), document.path_text(about), what, do=do)


def _at_value(mistake: _Mistake, document: Document, what: str, why: str = "", do: str = "") -> Problem:
    """Return a problem with a value; one of many lines is shown at its key, where one begins to read it."""
    path, where = mistake.path, document.value_position(mistake.path)
    if mistake.about_key:
        what = f"the key {shown(path[-1])}: {what}"
    if mistake.about_key or isinstance(document.get(path), dict | list):
        where = document.position(path)
    return Problem(where, document.path_text(path), what, why, do)


def _keys_here(mistake: _Mistake) -> str:
    keys = keys_of(mistake.parts[-1][1]) if mistake.parts else {}
    return f"Keys here: {listed(keys)}." if keys else "No keys belong here."


def _unknown_key_advice(mistake: _Mistake, document: Document) -> str:
    """Say which key is meant, or that one belongs a level up or down: the usual slip of indentation."""
    if mistake.meant or not mistake.parts:
        return did_you_mean(mistake.meant)
    word = str(mistake.path[-1])
    *above, (_, here) = mistake.parts
    for name, key in keys_of(here).items():
        if bare(key.annotation) in key.models and word in keys_of(key.models[0]):
            return f"it belongs under {shown(name)}: check the indentation. "
    for path, model in reversed(above):
        if word in keys_of(model):
            place = document.path_text(path)
            return f"it belongs to {place}: check the indentation. " if place else "it belongs to the top level. "
    return ""


def _wrong_tag(mistake: _Mistake, document: Document) -> Problem:
    key = str(mistake.context["discriminator"]).strip("'")
    one_of = f"{key} is one of: {listed(mistake.tags)}."
    part, path = mistake.value, mistake.path
    if mistake.type == "union_tag_not_found":
        if typo := nearest(key, [name for name in part if isinstance(name, str)]):
            do = f"{did_you_mean(key)}{one_of}"
            return _at_key(document, (*path, typo), path, f"unknown key {shown(typo)}", do)
        return _at_key(document, path, path, f"{shown(key)} is missing", one_of)
    value, path = part.get(key), (*path, key)
    do = f"{did_you_mean(nearest(value, mistake.tags))}{one_of}"
    return Problem(document.value_position(path), document.path_text(path), f"unknown {key} {shown(value)}", do=do)


def _choices(mistake: _Mistake) -> list[str]:
    return re.findall(r"'([^']*)'", str(mistake.context["expected"])) if mistake.type == "literal_error" else []


def _expected(mistake: _Mistake) -> str:
    if mistake.about_key:
        return ""
    choices = _choices(mistake)
    return f"{'one of: ' if len(choices) > 1 else ''}{listed(choices)}" or _EXPECTED.get(mistake.type, "")


def _repair(mistake: _Mistake, raw: str | None) -> str:
    value, kind, choices = mistake.value, mistake.type, _choices(mistake)
    if near := nearest(value, choices):
        return did_you_mean(near).strip()
    if value is None:
        return f"Write a value, or remove the line. {mistake.hint}".strip()
    written = shown(value) if raw is None else raw
    if isinstance(value, bool | int | float) and (kind == "string_type" or written in choices):
        return f'quote it: "{escaped(shortened(written))}"'
    if kind == "bool_type" and isinstance(value, str) and (word := value.lower()) in _YES:
        return f"write it without quotes: {word}" if word == _YES[word] else f"write {_YES[word]}"
    if kind in _NUMBER and isinstance(value, str) and re.fullmatch(_NUMBER[kind], value):
        return f"write it without quotes: {value}"
    if kind == "tuple_type" and isinstance(value, str | int | float):
        return f"write it as a list: [{shown(value) if isinstance(value, str) else written}]"
    return mistake.hint


def _wrong_value(mistake: _Mistake, document: Document) -> Problem:
    kind, context, hint = mistake.type, mistake.context, mistake.hint
    got = _got(mistake.value, document.text(mistake.path))
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return _at_value(mistake, document, f"must be {words} {context.get(bound)}, got {got}", hint)
    if kind in _LENGTHS:
        words, bound = _LENGTHS[kind]
        length = _count(context.get(bound), "character" if kind.startswith("string") else "entry")
        return _at_value(mistake, document, f"must have {words} {length}, got {got}", hint)
    if kind == "string_pattern_mismatch":
        why = hint or f"It must match the pattern {shortened(str(context.get('pattern', '')), 200)}"
        what = "it" if mistake.about_key else shown(mistake.value)
        return _at_value(mistake, document, f"{what} does not have the right form", why)
    if kind == "value_error":
        what, _, why = mistake.message.removeprefix("Value error, ").strip().partition("\n")
        return _at_value(mistake, document, what or "the value is not valid", why)
    what = re.sub(r"\A(?:Input|Value|String) (?=should)", "", mistake.message).replace("should", "must", 1)
    return _at_value(mistake, document, f"{what[:1].lower()}{what[1:]}, got {got}", hint)


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
