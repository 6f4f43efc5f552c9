"""Turns pydantic's errors into problems with plain messages, at the line of the value."""

import math
import re
from dataclasses import replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from .definition.base import did_you_mean, nearest
from .load import Document
from .model_keys import Model, bare, branches, hint_of, keys_of, tag_of
from .problems import Problem, count_of, escaped, in_order, listed, shortened, shown

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
    "greater_than": ("be greater than", "gt", ""),
    "greater_than_equal": ("be at least", "ge", ""),
    "less_than": ("be less than", "lt", ""),
    "less_than_equal": ("be at most", "le", ""),
    "string_too_short": ("have at least", "min_length", "character"),
    "string_too_long": ("have at most", "max_length", "character"),
    "too_short": ("have at least", "min_length", "entry"),
    "too_long": ("have at most", "max_length", "entry"),
}
"""Type of an error → the requirement, the name of the bound, and its unit."""
_YES = dict.fromkeys(("true", "yes", "on", "y"), "true") | dict.fromkeys(("false", "no", "off", "n"), "false")
_NUMBER = {"int_type": r"[-+]?[0-9]{1,30}", "float_type": r"[-+]?[0-9]{1,30}(\.[0-9]{0,30})?"}


def problems_from(error: ValidationError, document: Document, model: type[BaseModel]) -> list[Problem]:
    """Return a problem for each error that `model` finds in `document`, in the order of the file."""
    errors = [details for details in error.errors(include_url=False) if not _is_echo(details)]
    mistakes = _explained([_Mistake(details, model, document) for details in errors])
    return in_order(dict.fromkeys(each.problem() for each in mistakes))


def _is_echo(details: Any) -> bool:
    """Return whether a list is too short only because pydantic does not count its invalid items."""
    return details["type"] == "too_short" and bool(len(details["input"]) >= details["ctx"]["min_length"])


class _Mistake:
    """One of pydantic's errors, with the part of the model at its place."""

    def __init__(self, details: Any, model: Model, document: Document) -> None:
        self.document = document
        self.type: str = details["type"]
        self.message: str = details["msg"]
        self.value: Any = details["input"]
        self.context: dict[str, Any] = details.get("ctx") or {}
        self.path: Path = ()  # Without the tags of choices, which pydantic adds.
        self.hint = ""
        self.parts: list[tuple[Path, Model]] = []  # Parts of the model on the path, outermost first.
        self.about_key = False  # Whether the error is about a free key of a mapping instead of its value.
        self.meant = ""  # The known key that is most similar to a mistyped one.
        self.tag, self.elsewhere = "", list[str]()  # The tags of other kinds that have the key.
        annotation: Any = model
        choices: dict[Path, Any] = {}
        loc = details["loc"]
        for number, step in enumerate(loc):
            kind = bare(annotation)
            if choice := branches(annotation):
                choices[self.path] = annotation
                annotation = choice.get(str(step))
                continue
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                self.parts.append((self.path, kind))
                key = keys_of(kind).get(str(step))
                annotation = key.annotation if key else None
                self.hint = hint_of(annotation) or key.description if key else ""
            elif get_origin(kind) is dict and loc[number + 1 :] == ("[key]",):
                annotation, self.about_key = get_args(kind)[0], True
            else:  # An item of a list, a value of a mapping, or a type that only pydantic knows.
                annotation = get_args(kind)[get_origin(kind) is dict] if get_args(kind) else None
            self.path = (*self.path, step)
            self.hint = hint_of(annotation) or self.hint
            if self.about_key:
                break
        if self.type == "extra_forbidden" and (parts := choices.get(self.path[:-1])):
            others = {tag: bare(other) for tag, other in branches(parts).items()}
            self.tag = tag_of(parts) or ""
            self.elsewhere = [tag for tag, other in others.items() if self.tag and self.path[-1] in keys_of(other)]
        self.annotation = annotation
        self.tags = tuple(branches(annotation))  # All tags, if the tag is wrong or missing.

    def problem(self) -> Problem:
        path, last = self.path, str(self.path[-1]) if self.path else ""
        if self.type == "extra_forbidden":
            keys = keys_of(self.parts[-1][1]) if self.parts else {}
            here = f"Keys here: {listed(keys)}." if keys else "No keys belong here."
            return self._at_key(path, path[:-1], f"unknown key {shown(last)}", f"{self._key_advice()}{here}")
        if self.type == "missing":
            key = shown(last) if path else "a value"
            return self._missing(path[:-1], key, self.hint and f"{key}: {self.hint}")
        if self.type in ("union_tag_invalid", "union_tag_not_found"):
            return self._wrong_tag()
        if expected := self._expected():
            return self._at_value(f"expected {expected}, got {self._got()}", do=self._repair())
        return self._wrong_value()

    def _at_key(self, path: Path, about: Path, what: str, do: str) -> Problem:
        return Problem(self.document.position(path), self.document.path_text(about), what, do=do)

    def _missing(self, about: Path, key: str, do: str) -> Problem:
        return replace(self._at_key(self.path, about, f"{key} is missing", do), is_missing=True)

    def _at_value(self, what: str, why: str = "", do: str = "") -> Problem:
        """Return a problem at the value, or at its key if the value is a list or a mapping."""
        at_key = self.about_key or isinstance(self.document.get(self.path), dict | list)
        if self.about_key:
            what = f"the key {shown(self.path[-1])}: {what}"
        return self.document.problem(self.path, what, why, do, at="key" if at_key else "value")

    def _key_advice(self) -> str:
        """Return the key that is meant, or the level above or below that has the key: a usual slip of indentation."""
        if self.elsewhere:
            kind = self.document.get((*self.path[:-1], self.tag))
            this = f"{self.tag} is {kind} here" if kind else f"{self.tag} is not set here"
            return f"it belongs to {self.tag}: {' or '.join(self.elsewhere)}, but {this}. "
        if self.meant or not self.parts:
            return did_you_mean(self.meant)
        word = str(self.path[-1])
        *above, (_, here) = self.parts
        for name, key in keys_of(here).items():
            if bare(key.annotation) in key.models and word in keys_of(key.models[0]):
                return f"it belongs under {shown(name)}: check the indentation. "
        for path, model in reversed(above):
            if word in keys_of(model):
                place = self.document.path_text(path)
                return f"it belongs to {place}: check the indentation. " if place else "it belongs to the top level. "
        return ""

    def _wrong_tag(self) -> Problem:
        key = str(self.context["discriminator"]).strip("'")
        one_of = f"{key} is one of: {listed(self.tags)}."
        if self.type == "union_tag_not_found":
            if typo := nearest(key, [name for name in self.value if isinstance(name, str)]):
                do = f"{did_you_mean(key)}{one_of}"
                return self._at_key((*self.path, typo), self.path, f"unknown key {shown(typo)}", do)
            return self._missing(self.path, shown(key), one_of)
        value = self.value.get(key)
        do = f"{did_you_mean(nearest(value, self.tags))}{one_of}"
        return self.document.problem((*self.path, key), f"unknown {key} {shown(value)}", do=do, at="value")

    def _choices(self) -> list[str]:
        return re.findall(r"'([^']*)'", str(self.context["expected"])) if self.type == "literal_error" else []

    def _expected(self) -> str:
        if self.about_key:
            return ""
        choices = self._choices()
        return f"{'one of: ' if len(choices) > 1 else ''}{listed(choices)}" or _EXPECTED.get(self.type, "")

    def _repair(self) -> str:
        value, kind, choices, raw = self.value, self.type, self._choices(), self.document.text(self.path)
        if near := nearest(value, choices):
            return did_you_mean(near).strip()
        if value is None:
            return f"Set a value, or remove the line. {self.hint}".strip()
        written = shown(value) if raw is None else raw
        if isinstance(value, bool | int | float) and (kind == "string_type" or written in choices):
            return self._refused(written) or f'quote it: "{escaped(shortened(written))}"'
        if kind == "bool_type" and isinstance(value, str) and (word := value.lower()) in _YES:
            return f"write it without quotes: {word}" if word == _YES[word] else f"write {_YES[word]}"
        if kind in _NUMBER and isinstance(value, str) and re.fullmatch(_NUMBER[kind], value):
            return f"write it without quotes: {value}"
        if kind == "tuple_type" and isinstance(value, str | int | float):
            return f"write it as a list: [{shown(value) if isinstance(value, str) else written}]"
        return self.hint

    def _refused(self, text: str) -> str:
        """Return the error that a string in place of the value would have, or an empty string if it is valid."""
        try:
            TypeAdapter(self.annotation).validate_python(text)
        except ValidationError as error:
            first = error.errors()[0]
            own = first["msg"].removeprefix("Value error, ") if first["type"] == "value_error" else self.hint
            return f"quotes are not enough: {own or first['msg']}"
        return ""

    def _wrong_value(self) -> Problem:
        if self.type in _BOUNDS:
            words, name, unit = _BOUNDS[self.type]
            bound = count_of(self.context.get(name), unit) if unit else self.context.get(name)
            return self._at_value(f"must {words} {bound}, got {self._got()}", self.hint)
        if self.type == "string_pattern_mismatch":
            why = self.hint or f"It must match the pattern {shortened(str(self.context.get('pattern', '')), 200)}"
            what = "it" if self.about_key else shown(self.value)
            return self._at_value(f"{what} does not have the right form", why)
        if self.type == "value_error":
            what, _, why = self.message.removeprefix("Value error, ").strip().partition("\n")
            return self._at_value(what or "the value is not valid", why)
        what = re.sub(r"\A(?:Input|Value|String) (?=should)", "", self.message).replace("should", "must", 1)
        return self._at_value(f"{what[:1].lower()}{what[1:]}, got {self._got()}", self.hint)

    def _got(self) -> str:
        value, raw = self.value, self.document.text(self.path)
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
            return f"a list of {count_of(len(value), 'entry')}" if value else "an empty list"
        return "an empty mapping" if value == {} else "a mapping" if isinstance(value, dict) else shown(value)


def _explained(mistakes: list[_Mistake]) -> list[_Mistake]:
    """Set the meant key of each unknown key. Drop the errors that follow from it."""
    missing = {each.path for each in mistakes if each.type == "missing"}
    explained: set[Path] = set()
    for each in mistakes:
        if each.type == "extra_forbidden" and each.parts and not each.elsewhere:
            parent, model = each.parts[-1]
            word, known = str(each.path[-1]), list(keys_of(model))
            present = each.document.get(parent)
            free = [key for key in known if not (isinstance(present, dict) and key in present)]
            lacking = [key for key in free if (*parent, key) in missing - explained]
            meant = nearest(word, lacking) or nearest(word, known, 1) or nearest(word, free) or nearest(word, known)
            each.meant = meant
            explained.add((*parent, meant))
    kept = [each for each in mistakes if each.type != "missing" or each.path not in explained]
    return [each for each in kept if not each.elsewhere or (*each.path[:-1], each.tag) not in explained]
