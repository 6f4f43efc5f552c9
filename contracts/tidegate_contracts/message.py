"""The base of every message: camelCase on the wire, no unknown fields, immutable."""

from typing import Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

MOST_NUMBER: Final = 2**53
"""The largest number that is said: up to it, sums and fractions of them are exact enough everywhere."""


class Message(BaseModel):
    """Something that one part writes and another reads."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True)
