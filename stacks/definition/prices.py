"""Prices: what somebody said, somewhere, on a day; none is ours."""

from typing import Annotated

from pydantic import Field

from .base import Section, Text, form
from .guardrails import Day
from .money import CURRENCY

Currency = Annotated[str, form(r"^[A-Z]{3}$", "a currency by its code in ISO 4217, such as USD or EUR")]


class Price(Section):
    """What one GPU costs."""

    per_hour: Annotated[float, Field(ge=0, le=100_000)]
    """Money for one whole GPU an hour. A slice costs its part of it: the larger of its parts of the compute slices and
    of the memory slices. All slices of a GPU together cost no more than the GPU."""
    currency: Currency = CURRENCY
    """Currency, the same for all prices of a definition."""
    source: Text
    """Where the price is from: an address, an offer, a contract."""
    as_of: Day
    """Day on which it was so."""
