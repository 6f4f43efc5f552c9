"""Guardrails: how severe each is here, who answers for an exception and until when, and what GPUs may cost."""

from datetime import date
from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from policies.guardrails import BY_NAME

from .base import Named, Section, Text, form

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
    """Refuse what is no guardrail: a severity or waiver of it would have no effect."""
    if name not in BY_NAME:
        if name in _REMOVED:
            now = "tidegate check or Tidegate itself does its work, without severities or waivers"
            raise ValueError(f'the guardrail "{name}" no longer exists: take its name away; {now} (CHANGELOG.md)')
        near = get_close_matches(name, BY_NAME, n=1)
        guess = f': did you mean "{near[0]}"?' if near else "; docs/guardrails.md lists them all"
        raise ValueError(f'there is no guardrail "{name}"{guess}')
    return name


def _day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no day of the calendar, such as 2027-03-31") from None
    return text


GuardrailName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": [*BY_NAME]})]
Day = Annotated[
    str,
    form(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "a day written as year, month and day, such as 2027-03-31"),
    AfterValidator(_day),
]


_KIND_AND_NAME = "kind and name of an object, such as StatefulSet/ondemand-small"
OneObject = Annotated[str, form(r"^[A-Z][A-Za-z]*/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", _KIND_AND_NAME)]


class Waiver(Named):
    """An exception from a guardrail: somebody answers for it, for a reason, and until a day."""

    rule: GuardrailName
    """Name of the guardrail, as docs/guardrails.md has it."""
    object: OneObject | None = None
    """The one object that it is about, as findings name it; every object of the environment without."""
    owner: Text
    """Who answers for it: a person or a team that can be asked."""
    reason: Text
    """Why the exception is needed."""
    until: Day
    """Its last day; from the next one the guardrail holds again."""


class Guardrails(Section):
    """What every rendering, preview and chart of an environment is held to; docs/guardrails.md explains each rule."""

    severities: dict[GuardrailName, Literal["advisory", "mandatory"]] = Field(default_factory=dict)
    """Severities that differ from a guardrail's own: mandatory stops a command, advisory is only said."""
    waivers: tuple[Waiver, ...] = ()
    """Exceptions, each with an owner, a reason and an end."""
    gpu_slices: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """How many GPU slices the environment may take on one data plane, autoscalers at their most; a whole GPU counts as
    one. No ceiling without."""
    monthly_budget: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    """What its GPU devices may cost a month (730 hours) on one data plane, autoscalers at their most, by the prices
    under gpus and in their currency; each device needs a price then. No ceiling without."""
