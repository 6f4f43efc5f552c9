"""Placeholders for the chart's values. Components run once with them, and their uses are recorded.

A placeholder knows the path of its value (`$pool.resources.cpu`) and its type. It refuses operations that need the
value itself. Use a helper of `components.values` instead, which records the operation.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from components.values import Placeholder
from stacks.definition.base import FACTORS
from stacks.model_keys import Key, bare, models_in, tag_of, tag_values

from .arguments import arguments, default_of, is_list, item_type, may_be_zero, meant
from .recording import AS_TEXT, Recording, Value, enclosed, go_text, types_of

_FACTORS = " ".join(f'"{unit or ""}" {factor}' for unit, factor in FACTORS.items())
_BYTES = f"""\
{{{{- $unit := regexFind "[A-Za-z]*$" . -}}}}
{{{{- $factors := dict {_FACTORS} -}}}}
{{{{- mulf (trimSuffix $unit .) (get $factors $unit) | int64 -}}}}"""
"""Named template that computes the bytes of a quantity, as `components.values.in_bytes` does."""


class _Open(Placeholder):
    """The base of all placeholders."""

    _recording: Recording
    _value: Value

    def each(self, make: Callable[[Any], Any]) -> Any:
        expression = self._value.expression
        if not is_list(self._value.kind):
            raise TypeError(f"{expression} is not a list")
        variable = f"${singular(expression.rpartition('.')[2])}"
        item = placeholder(self._recording, Value(variable, item_type(self._value.kind)))
        there = "" if self._value.default else expression
        return self._recording.loop(f"range {variable} := {self._value.known}", there, lambda: make(item))

    def entries(self, make: Callable[[Any, Any], Any]) -> Any:
        it, inner = self._value.expression, get_args(bare(self._value.kind))
        name, value = (
            placeholder(self._recording, Value(*each)) for each in zip(("$name", "$value"), inner, strict=True)
        )
        return self._recording.loop(f"range $name, $value := {it}", it, lambda: make(name, value))

    def choice(self, make: Callable[[Any], Any], otherwise: Callable[[], Any], test: Any) -> Any:
        """Record a branch, in which the tested value is known to be present."""
        value, recording = self._value, self._recording
        there = placeholder(recording, replace(value, optional=False))
        if test is None:
            return recording.branch(value.there, lambda: make(there), otherwise) if value.is_open else make(there)
        if test is True:
            is_true = value.known if value.default else value.expression
            return recording.branch(is_true, lambda: make(there), otherwise)
        key = tag_of(value.kind)
        if test not in models_in(value.kind) or key is None:
            raise TypeError(f"{value.expression} cannot be of class {test.__name__}")
        # A missing tag means this class only if it is the default.
        default = _tag_default(value, key)
        named = Value(f"{value.expression}.{key}", str, default=default).known
        tag = named if default in tag_values(test, key) else f"{value.expression}.{key}"
        is_one = f"eq {enclosed(tag)} {' '.join(map(go_text, tag_values(test, key)))}"
        condition = f"and {value.expression} ({is_one})" if value.optional else is_one
        narrowed = placeholder(recording, Value(value.expression, test))
        return recording.branch(condition, lambda: make(narrowed), otherwise)

    def apply(self, helper: str, other: Any = None) -> Any:
        """Record a value that is computed from this one."""
        it, value = enclosed(self._value.known), self._value
        if helper == "present":
            made = Value(f"not (empty {it})" if value.there == it else value.there, bool)
        elif helper == "needed":
            made = Value(f"required {go_text(other)} {it}", value.kind)
        elif helper == "equals":
            made = Value(f"eq {it} {go_text(other)}", bool)
        elif helper == "total":
            made = Value(f"add {it} {other}", int)
        elif helper == "replaced":
            made = Value(f"replace {' '.join(map(go_text, other))} {it}", str)
        elif helper == "in_bytes":
            made = Value(self._in_bytes(it), int)
        elif helper == "share_of":
            part, parts = other
            made = Value(f"div (mul ({self._in_bytes(it)}) {part}) {parts}", int)
        elif helper == "sum_of":
            added = enclosed(other._value.known) if isinstance(other, _Open) else go_text(other)
            both = f"add ({self._in_bytes(it)}) ({self._in_bytes(added)}) {2**20 - 1}"
            made = Value(f'printf "%dMi" (div ({both}) {2**20})', str)
        else:
            made = Value(f"div (add {it} {other - 1}) {other}", int)
        return placeholder(self._recording, made)

    def _in_bytes(self, quantity: str) -> str:
        self._recording.helpers.setdefault("tidegate.bytes", _BYTES)
        return f'int64 (include "tidegate.bytes" {quantity})'


def _refused(self: _Open, *_: object, **__: object) -> Any:
    raise TypeError(f"{self._value.expression} is not known yet: use a helper of components.values, or an f-string")


_OPERATORS = "bool iter len eq ne lt le gt ge contains getitem add radd sub rsub mul rmul mod floordiv truediv"
for _operator in _OPERATORS.split():
    setattr(_Open, f"__{_operator}__", _refused)


class Leaf(_Open, str):
    """A text, number or truth value. It is a text with its token."""

    def __new__(cls, recording: Recording, value: Value) -> "Leaf":
        made = super().__new__(cls, recording.token(value))
        made._recording, made._value = recording, value
        return made

    def __str__(self) -> str:
        if not set(types_of(self._value.kind)) <= {str, int}:
            _refused(self)
        return self._recording.token(self._value, AS_TEXT)

    def __format__(self, layout: str) -> str:
        if layout:
            _refused(self)
        return str(self)


# A text would apply these to its token.
for _method in (*(name for name in dir(str) if not name.startswith("_")), "keys"):
    setattr(Leaf, _method, _refused)


class Section(_Open):
    """A part with fields, or a list of such parts."""

    def __init__(self, recording: Recording, value: Value) -> None:
        self._recording, self._value = recording, value

    def __getattr__(self, name: str) -> Any:
        expression, owners = self._value.expression, models_in(self._value.kind)
        found = [argument for owner in owners for argument in arguments(owner) if argument.attribute == name]
        if name.startswith("__") or is_list(self._value.kind):
            raise AttributeError(f"{expression} has no {name}")
        if self._value.optional:
            _refused(self)
        if found and len(found) == len(owners):
            return placeholder(self._recording, _field(self._value, found))
        if all(name in owner.model_fields for owner in owners):
            return owners[0].model_fields[name].default  # Only the engine uses it: it is not a value.
        raise AttributeError(f"not all kinds of {expression} have {name}: use of_kind()")


def placeholder(recording: Recording, value: Value) -> Any:
    """Return the placeholder of a value, by its type."""
    return (Section if models_in(value.kind) else Leaf)(recording, value)


def singular(name: str) -> str:
    """Return the name of one item of a list."""
    for ending, other in (("ies", "y"), ("sses", "ss"), ("ss", "ss"), ("s", "")):
        if name.endswith(ending):
            return name.removesuffix(ending) + other
    return name


def _tag_default(section: Value, key: str) -> Any:
    """Return the default of a key of one of several classes: that of its section, or that of the tag."""
    is_meant = section.default is None and key == tag_of(section.kind)
    return meant(models_in(section.kind)) if is_meant else (section.default or {}).get(key)


def _field(section: Value, found: list[Key]) -> Value:
    """Return the value of a section's field, which several classes may have."""
    first, own = found[0], default_of(found[0])
    alike = own is not None and all(default_of(one) == own for one in found)
    default = own if alike else _tag_default(section, first.name)
    expression = f"{section.expression}.{first.name}"
    if isinstance(default, dict) and first.models:
        expression = f"({expression})"  # In parentheses, Go finds nothing in nothing instead of failing.
    optional = not first.field.is_required() and own is None
    return Value(expression, first.annotation, optional, default, may_be_zero(first))
