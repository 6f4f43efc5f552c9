"""Expressions of Go's templates."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from .arguments import bare


def enclosed(expression: str) -> str:
    """Return an expression as an argument of another."""
    return f"({expression})" if " " in expression else expression


def both(condition: str, other: str) -> str:
    """Return the condition that two conditions hold; an empty one always does."""
    return f"and {enclosed(condition)} {enclosed(other)}" if other not in ("", condition) else condition


def either_of(conditions: list[str]) -> str:
    """Return the condition that one of several holds; empty when that is always so."""
    different = list(dict.fromkeys(conditions))
    if "" in different or any(f"not {enclosed(condition)}" in different for condition in different):
        return ""
    return different[0] if len(different) == 1 else f"or {' '.join(map(enclosed, different))}" if different else ""


def go_text(text: str) -> str:
    """Return a text as Go writes it: in back quotes where that saves escapes."""
    if ('"' in text or "\\" in text) and "`" not in text and text.isprintable():
        return f"`{text}`"
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    return '"' + "".join(escapes.get(c, c if c.isprintable() else f"\\U{ord(c):08x}") for c in text) + '"'


def types_of(kind: Any) -> tuple[type, ...]:
    """Return the plain types of a value; those of its words for a choice of words."""
    kind = bare(kind)
    return tuple({type(word) for word in get_args(kind)}) if get_origin(kind) is Literal else (kind,)


def is_mapping(kind: Any) -> bool:
    """Say whether values of this type are mappings with keys of the user's own."""
    return get_origin(bare(kind)) in (Mapping, dict)
