"""One order for what has none: named items by name, so that moving lines in a definition changes nothing."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel

Part = TypeVar("Part")
_KEYS = ("name", "issuer", "version")


def in_order(part: Part) -> Part:
    """Return the same part with items sorted by name (issuers by URL, versions by number) and keys sorted.

    Plain texts, such as mount options or arguments, keep their order: it can mean something.
    """
    ordered: Any = part
    if isinstance(part, BaseModel):
        ordered = part.model_copy(update={name: in_order(getattr(part, name)) for name in type(part).model_fields})
    elif isinstance(part, Mapping):
        ordered = {key: in_order(part[key]) for key in sorted(part)}
    elif isinstance(part, tuple):
        items = [in_order(item) for item in part]
        key = next((key for key in _KEYS if items and all(hasattr(item, key) for item in items)), None)
        ordered = tuple(sorted(items, key=lambda item: getattr(item, key)) if key else items)
    return cast(Part, ordered)
