"""Prices of GPUs, each with its source and day. Tidegate has no prices."""

from typing import Annotated

from pydantic import Field

from .base import Section, Text, form
from .guardrails import Day
from .money import CURRENCY

Currency = Annotated[str, form(r"^[A-Z]{3}$", "a currency by its code in ISO 4217, such as USD or EUR")]


class Price(Section):
    """Price of one GPU, and so of its slices (docs/capacity.md)."""

    per_hour: Annotated[float, Field(ge=0, le=100_000)]
    """Price of a whole GPU an hour."""
    currency: Currency = CURRENCY
    """Currency, the same for all prices."""
    source: Text
    """Source of the price."""
    as_of: Day
    """Day of the price."""
