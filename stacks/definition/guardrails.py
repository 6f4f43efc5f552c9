"""Guardrails: their severities, exceptions, and limits on GPUs and cost."""

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from policies.guardrails import BY_NAME

from .base import Named, Section, Text, did_you_mean, form, nearest

_REMOVED = (
    "autoscalers-own-the-number-of-replicas",
    "gpu-pods-have-limit-selector-and-toleration-that-agree",
    "gpu-slices-stay-under-their-ceiling",
    "grace-periods-hold-pause-and-stop",
    "issuers-name-their-audiences",
    "production-shares-nothing-that-others-may-write",
    "routes-bring-no-configuration-of-their-own",
    "the-cost-a-month-stays-within-its-budget",
)


def _known(name: str) -> str:
    """Refuse an unknown guardrail, because its severity or waiver would have no effect."""
    if name not in BY_NAME:
        if name in _REMOVED:
            now = "Tidegate enforces it without severities and waivers (CHANGELOG.md)"
            raise ValueError(f'the guardrail "{name}" no longer exists, because {now}: remove it')
        guess = did_you_mean(nearest(name, BY_NAME)).strip()
        raise ValueError(f'there is no guardrail "{name}"\n{guess or "docs/guardrails.md lists all."}')
    return name


def _day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a day of the calendar, such as 2027-03-31") from None
    return text


GuardrailName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": [*BY_NAME]})]
Day = Annotated[
    str,
    form(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "year, month and day, such as 2027-03-31", "day"),
    AfterValidator(_day),
]


_KIND_AND_NAME = "kind and name of an object, such as StatefulSet/ondemand-small"
OneObject = Annotated[str, form(r"^[A-Z][A-Za-z]*/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", _KIND_AND_NAME)]


class Waiver(Named):
    """An exception from a guardrail, with an owner, a reason and a last day."""

    rule: GuardrailName
    """Name of the guardrail."""
    object: OneObject | None = None
    """Object, as findings name it. The default is all objects."""
    owner: Text
    """Responsible person or team."""
    reason: Text
    """Reason for the exception."""
    until: Day
    """Last day."""


class Guardrails(Section):
    """Settings of the guardrails (docs/guardrails.md)."""

    severities: dict[GuardrailName, Literal["advisory", "mandatory"]] = Field(default_factory=dict)
    """Severities instead of the defaults: mandatory fails a command, advisory prints a warning."""
    waivers: tuple[Waiver, ...] = ()
    """Exceptions."""
    gpu_slices: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Most GPU slices on each data plane, with autoscalers at their maximum. A whole GPU counts as one."""
    monthly_budget: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    """Highest GPU cost a month on each data plane, likewise. Each device needs a price."""
