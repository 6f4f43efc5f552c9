"""Loops, branches and texts of components, which the generator of the Helm chart turns into template actions.

On their arguments, components use only these helpers and f-strings, and no `for`, `if`, `+` or `json.dumps`. With real
values a helper is a plain loop or branch. Only the generator passes placeholders, which record each helper.

| helper | in plain Python |
|---|---|
| `each(items, f)`, `listed(items, f)` | `[f(item) for item in items]`, but `each` returns None for an empty list |
| `flat(items, f)` | the same if `f` returns lists, as one list |
| `when(value, f)`, `either(value, f, g)` | `f(value) if value is not None else None`, and `else g()` |
| `if_true(flag, f, g)` | `f() if flag else g()` |
| `of_kind(value, Class, f, g)` | `f(value) if isinstance(value, Class) else g()` |
| `of_kinds(value, {Class: f, …})` | `match` over all classes of a union |
| `joined(…)`, `merged(…)` | one list or mapping from several, without those that are None |
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sized
from contextvars import ContextVar
from itertools import chain
from typing import Any, TypeVar, cast, overload

from pydantic.alias_generators import to_camel

from stacks.definition.base import byte_count

Item = TypeVar("Item")
Made = TypeVar("Made")


class Placeholder:
    """A value that a user of the chart sets later. It records each helper that is applied to it."""

    each: Any
    """Record a loop over items."""
    entries: Any
    """Record a loop over keys and values."""
    choice: Any
    """Record a branch: on the presence of a value (None), on its truth (True), or on its class."""
    apply: Any
    """Record a value computed from this one by the helper of that name."""


RECORDER: ContextVar[Any] = ContextVar("RECORDER", default=None)
"""Set only while the generator of templates runs a program. It records calls of `joined`, `merged`, `json_text` and
`checksum` with placeholders."""


def _nothing() -> None:
    return None


def each(items: Iterable[Item], make: Callable[[Item], Made | None]) -> list[Made] | None:
    """Return the results of `make` that are not None, or None if there are none, which omits the field."""
    if isinstance(items, Placeholder):
        return cast("list[Made]", items.each(make))
    return listed(items, make) or None


def entries(values: Mapping[str, Item], make: Callable[[str, Item], Made]) -> list[Made] | None:
    """Return the results of `make` sorted by key, or None if there are none, which omits the field."""
    if isinstance(values, Placeholder):
        return cast("list[Made]", values.entries(make))
    return [make(key, values[key]) for key in sorted(values)] or None


def listed(items: Iterable[Item], make: Callable[[Item], Made | None]) -> list[Made]:
    """Return the results of `make` that are not None. Unlike `each`, this keeps an empty list, for files."""
    if isinstance(items, Placeholder):
        return cast("list[Made]", items.each(make))
    return [made for item in items if (made := make(item)) is not None]


def flat(items: Iterable[Item], make: Callable[[Item], list[Made]]) -> list[Made]:
    """Return one list of all results of `make`, which returns a list for each item."""
    lists = listed(items, make)
    return cast("list[Made]", lists) if RECORDER.get() is not None else list(chain.from_iterable(lists))


def when(value: Item | None, make: Callable[[Item], Made | None]) -> Made | None:
    """Return the result of `make` for a value, or None if the value is None, which omits the field."""
    return either(value, make, _nothing)


def either(value: Item | None, make: Callable[[Item], Made], otherwise: Callable[[], Made]) -> Made:
    """Return the result of `make` for a value, or that of `otherwise` if the value is None."""
    if isinstance(value, Placeholder):
        return cast("Made", value.choice(make, otherwise, None))
    return otherwise() if value is None else make(value)


@overload
def if_true(flag: bool | int, make: Callable[[], Made]) -> Made | None: ...
@overload
def if_true(flag: bool | int, make: Callable[[], Made], otherwise: Callable[[], Made]) -> Made: ...
def if_true(flag: bool | int, make: Callable[[], Any], otherwise: Callable[[], Any] = _nothing) -> Any:
    """Return the result of `make` if a flag is true or a number is not zero, else that of `otherwise`."""
    if isinstance(flag, Placeholder):
        return flag.choice(lambda _: make(), otherwise, True)
    return make() if flag else otherwise()


@overload
def of_kind(value: Any, kind: type[Item], make: Callable[[Item], Made | None]) -> Made | None: ...
@overload
def of_kind(value: Any, kind: type[Item], make: Callable[[Item], Made], otherwise: Callable[[], Made]) -> Made: ...
def of_kind(value: Any, kind: type[Item], make: Callable[[Item], Any], otherwise: Callable[[], Any] = _nothing) -> Any:
    """Return the result of `make` for a value of a class, or that of `otherwise` for another value."""
    if isinstance(value, Placeholder):
        return value.choice(make, otherwise, kind)
    return make(value) if isinstance(value, kind) else otherwise()


def of_kinds(value: Any, makers: Mapping[type, Callable[[Any], Made | None]]) -> Made | None:
    """Return the result of the maker for the class of a value. Raises TypeError if there is no such maker."""
    (kind, make), *others = makers.items()

    def otherwise() -> Made | None:
        if others:
            return of_kinds(value, dict(others))
        if isinstance(value, Placeholder):
            return None
        raise TypeError(f"no branch for {type(value).__name__}")

    return of_kind(value, kind, make, otherwise)


def nothing(_: Any) -> None:
    """Return None, which omits the field. For a branch of `of_kinds` without a result."""


def picked(part: Any, *names: str) -> dict[str, Any]:
    """Return some attributes of a part by their names in camel case, for files."""
    return {to_camel(name): getattr(part, name) for name in names}


def none_if_empty(values: Any) -> Any:
    """Return a list or mapping, or None if it is empty, which omits the field."""
    return None if isinstance(values, Sized) and not isinstance(values, Placeholder) and not values else values


def present(value: Any) -> bool:
    """Return whether a value is not None."""
    return cast("bool", value.apply("present")) if isinstance(value, Placeholder) else value is not None


def needed(value: Item | None, why: str) -> Item:
    """Return a value that is required here. Raises ValueError, or stops Helm, if it is None."""
    if isinstance(value, Placeholder):
        return cast("Item", value.apply("needed", why))
    if value is None:
        raise ValueError(why)
    return value


def equals(value: Item, other: Item) -> bool:
    """Return whether a value equals a constant."""
    return cast("bool", value.apply("equals", other)) if isinstance(value, Placeholder) else value == other


def total(number: int, other: int) -> int:
    """Return the sum of a number and a constant."""
    return cast("int", number.apply("total", other)) if isinstance(number, Placeholder) else number + other


def quotient(number: int, divisor: int) -> int:
    """Return a number divided by a constant, rounded up."""
    if isinstance(number, Placeholder):
        return cast("int", number.apply("quotient", divisor))
    return -(-number // divisor)


def replaced(text: str, old: str, new: str) -> str:
    """Return a text in which every `old` is replaced."""
    return cast("str", text.apply("replaced", (old, new))) if isinstance(text, Placeholder) else text.replace(old, new)


def in_bytes(quantity: str) -> int:
    """Return a quantity of memory or storage, such as 2Gi, in bytes."""
    return cast("int", quantity.apply("in_bytes")) if isinstance(quantity, Placeholder) else byte_count(quantity)


def share_of(quantity: str, part: int, parts: int) -> int:
    """Return the fraction `part / parts` of a quantity, in whole bytes."""
    if isinstance(quantity, Placeholder):
        return cast("int", quantity.apply("share_of", (part, parts)))
    return byte_count(quantity) * part // parts


def sum_of(quantity: str, other: str) -> str:
    """Return the sum of two quantities of memory or storage, in mebibytes, rounded up."""
    if isinstance(quantity, Placeholder):
        return cast("str", quantity.apply("sum_of", other))
    return f"{quotient(byte_count(quantity) + byte_count(other), 2**20)}Mi"


def joined(*parts: Iterable[Made] | None) -> list[Made]:
    """Return one list of several. Some may be None."""
    if (recorder := RECORDER.get()) is not None:
        return cast("list[Made]", recorder.joined(parts))
    return [item for part in parts if part is not None for item in part]


def merged(*parts: Any) -> dict[str, Any] | None:
    """Return one mapping of several, or None if it is empty. Some may be None, and later ones win."""
    if (recorder := RECORDER.get()) is not None:
        return cast("dict[str, Any]", recorder.merged(parts))
    return {key: value for part in parts if part is not None for key, value in part.items()} or None


def json_text(tree: Any) -> str:
    """Return a tree as JSON text for a file, with sorted keys, an indent of two, and without None. The text is the same
    as Go's, so that the chart's templates produce it too."""
    if (recorder := RECORDER.get()) is not None:
        return cast("str", recorder.json_text(tree))
    text = json.dumps(_exact(tree), sort_keys=True, ensure_ascii=False, indent=2)
    return text.translate(_GO_ESCAPES) + "\n"


def checksum(tree: Any) -> str:
    """Return the SHA-256 of a tree's text, as `json_text` writes it."""
    if (recorder := RECORDER.get()) is not None:
        return cast("str", recorder.checksum(tree))
    return hashlib.sha256(json_text(tree).encode()).hexdigest()


# Go's JSON escapes these characters too, as code points.
_GO_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})
_MOST = 2**53
"""Readers that use floating-point numbers, such as Helm, round larger numbers in JSON."""


def _exact(value: Any) -> Any:
    """Return a tree without None. Refuse numbers that some readers would round."""
    if isinstance(value, Mapping):
        return {key: _exact(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > _MOST):
        raise ValueError(f"{value!r} is not exact for all readers of JSON: use a whole number of at most 2^53")
    return value
