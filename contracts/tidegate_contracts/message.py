"""The base of every message: camelCase on the wire, no unknown fields, immutable."""

from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

MOST_NUMBER: Final = 2**53
"""The largest number in a message: up to it, sums and fractions are exact enough everywhere."""


class Message(BaseModel):
    """A format that one part writes and another reads."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True)


def first_error(error: ValidationError, where: str = "") -> str:
    """Return the first error of a message, or of its part `where`, in one line."""
    first = error.errors(include_input=False, include_url=False)[0]
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    place = ".".join(map(str, [*([where] if where else []), *first["loc"]]))
    return f"{place}{': ' if place else ''}{first['msg'].removeprefix('Value error, ')}{more}"
