"""The base of every message: camelCase on the wire, no unknown fields, immutable."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Message(BaseModel):
    """Something that one part writes and another reads."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True)
