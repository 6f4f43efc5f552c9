"""How components loop and branch: `each` over a list, `when` over what may be missing, `json_text` for files.

Components use these and never `for`, `if` or `json.dumps` on their arguments directly: a chart can then be written from
the same components, by handing them placeholders, on which the helpers record a loop or a condition.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pulumi import Input

Labels = Input[Mapping[str, Input[str]]]
"""Labels, annotations and other mappings of texts."""

Item = TypeVar("Item")
Made = TypeVar("Made")


def each(items: Iterable[Item], make: Callable[[Item], Made]) -> list[Made] | None:
    """Return what `make` makes of each item; None for no items, which omits the field."""
    return [make(item) for item in items] or None


def when(value: Item | None, make: Callable[[Item], Made]) -> Made | None:
    """Return what `make` makes of a value that is there; None for one that is missing, which omits the field."""
    return None if value is None else make(value)


def either(value: Item | None, make: Callable[[Item], Made], otherwise: Callable[[], Made]) -> Made:
    """Return what `make` makes of a value that is there, else what `otherwise` makes."""
    return otherwise() if value is None else make(value)


def joined(*parts: Iterable[Made] | None) -> list[Made]:
    """Return one list of several, of which some may be missing."""
    return [item for part in parts if part is not None for item in part]


def json_text(tree: Any) -> str:
    """Return a tree as JSON text for a file: keys sorted, indented by two."""
    return json.dumps(tree, indent=2, sort_keys=True) + "\n"


def checksum(settings: Any) -> str:
    """Return the SHA-256 of a mapping of texts, which changes when any of them does."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
