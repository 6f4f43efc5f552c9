"""Eviction policies: Tidegate's own, and others that your image of the eviction policy has."""

import math
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from .base import DnsLabel, Named, Section, Without, form

SHIPPED = ("break-even", "lru-idle", "cost-aware")
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


class PolicySetting(Section):
    """A setting that a policy takes: an argument of the function that returns it."""

    name: SettingName
    """Its name, which is the argument's."""
    type: Literal["text", "integer", "number", "boolean"] = "text"
    """What it may be."""
    minimum: float | None = None
    """The least that a number may be."""
    maximum: float | None = None
    """The most that a number may be."""

    @model_validator(mode="after")
    def _bounds_are_of_a_number_and_in_order(self) -> Self:
        """What is no number has neither minimum nor maximum."""
        bounds = [bound for bound in (self.minimum, self.maximum) if bound is not None]
        if bounds and self.type not in ("integer", "number"):
            raise ValueError(f"minimum and maximum are of numbers, and the type of {self.name} is {self.type}")
        if bounds != sorted(bounds):
            raise ValueError(f"minimum {self.minimum:g} is more than maximum {self.maximum:g}")
        return self

    @property
    def wanted(self) -> str:
        """What it may be, in words."""
        words = {"text": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
        bounds = {"of at least": self.minimum, "of at most": self.maximum}
        said = [f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None]
        return " ".join([words[self.type], " and ".join(said)]).strip()

    def takes(self, value: str) -> bool:
        """Say whether it may be so."""
        if self.type == "text":
            return True
        if self.type == "boolean":
            return value in ("true", "false")
        try:
            number = float(value) if self.type == "number" else int(value)
        except ValueError:
            return False
        least, most = self.minimum, self.maximum
        return math.isfinite(number) and (least is None or least <= number) and (most is None or number <= most)


class EvictionPolicy(Named):
    """An eviction policy of your own: your image eviction-policy has it."""

    name: Annotated[DnsLabel, Without(rf"^({'|'.join(SHIPPED)}|pinned)$", _OURS)]
    """Its name, which pools say in loading.policy, and which its entry point has."""
    settings: tuple[PolicySetting, ...] = ()
    """Settings that it takes; pools say them in loading.policySettings."""
