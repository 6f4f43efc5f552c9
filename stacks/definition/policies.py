"""Eviction policies: Tidegate's own, and others that your image of the eviction policy has."""

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from .base import DnsLabel, Named, Without, form

SHIPPED = ("break-even", "lru-idle", "lru", "cost-aware")
"""The policies that the eviction policy's image has by itself."""
PolicyName = Annotated[DnsLabel, Field(json_schema_extra={"examples": [*SHIPPED]})]
_OURS = "is a policy of Tidegate's own"
_ARGUMENT = "the name of an argument: lower-case letters, digits and underscores, such as spare_seconds"
SettingName = Annotated[str, form(r"^[a-z][a-z0-9_]{0,62}$", _ARGUMENT)]


def _text(value: object) -> object:
    """Return a number or a truth value as text, of which policies read their settings."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else value


_SCALARS = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}
SettingText = Annotated[str, BeforeValidator(_text), WithJsonSchema(_SCALARS)]


class EvictionPolicy(Named):
    """An eviction policy of your own: your image eviction-policy has it."""

    name: Annotated[DnsLabel, Without(rf"^({'|'.join(SHIPPED)}|pinned)$", _OURS)]
    """Its name, which pools say in loading.policy, and which its entry point has."""
