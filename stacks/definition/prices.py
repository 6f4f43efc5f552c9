"""Prices of GPUs, each with its source and day. Tidegate has no prices."""

from typing import Annotated

from pydantic import Field

from .base import Section, Text, form
from .guardrails import Day
from .money import CURRENCY

Currency = Annotated[str, form(r"^[A-Z]{3}$", "a currency by its code in ISO 4217, such as USD or EUR")]


class Price(Section):
    """Price of one GPU.

    A slice costs its part of the GPU: the larger of its parts of the compute slices and of the memory slices. All
    slices of a GPU together cost no more than the GPU.
    """

    per_hour: Annotated[float, Field(ge=0, le=100_000)]
    """Price of one whole GPU an hour."""
    currency: Currency = CURRENCY
    """Currency, the same for all prices of a definition."""
    source: Text
    """Source of the price: an address, an offer, a contract."""
    as_of: Day
    """Day of the price."""
