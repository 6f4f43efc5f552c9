"""Prices of GPUs: a file of the user's own, each price with its source and its day. None is known by itself."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from policies.guardrails.money import HOURS_A_MONTH
from stacks.definition.base import Section, Text, form
from stacks.definition.gpu_products import gpu_product
from stacks.definition.guardrails import Day
from stacks.load import frozen, load
from stacks.problems import DefinitionError
from stacks.schema_errors import problems_from

from .slices import Gpu

_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£"}


class GpuPrice(Section):
    """What one whole GPU costs."""

    gpu: Text
    """As GPU= takes it, such as a100-80gb, or its node label."""
    per_hour: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
    """For one GPU and hour: of a node with eight, an eighth of its price."""
    source: Text
    """Where the price stands: an address, a contract."""
    date: Day
    """The day on which it stood there."""

    def is_of(self, gpu: Gpu) -> bool:
        """Say whether it is this GPU's."""
        same = gpu.product is not None and gpu_product(self.gpu) == gpu.product
        return same or self.gpu.casefold() in (gpu.name.casefold(), (gpu.label or "").casefold())


class Prices(Section):
    """The whole file."""

    currency: Annotated[str, form(r"^[A-Z]{3}$", "a currency by its three letters, such as USD")]
    prices: tuple[GpuPrice, ...]

    def of(self, gpu: Gpu) -> GpuPrice | None:
        """Return the price of a GPU; None where the file has none."""
        return next((price for price in self.prices if price.is_of(gpu)), None)

    def text(self, amount: float, digits: int = 0) -> str:
        """Return an amount for people."""
        return f"{_SYMBOLS.get(self.currency, self.currency + ' ')}{amount:,.{digits}f}"


def read_prices(path: Path) -> Prices:
    """Read a file of prices; DefinitionError, with every mistake and its line, for one that cannot be used."""
    document = load(path)
    try:
        return Prices.model_validate(frozen(document.tree))
    except ValidationError as error:
        raise DefinitionError(problems_from(error, document, Prices)) from None


def gpu_hours(gpus: Fraction) -> float:
    """Return the hours a month of so many GPUs."""
    return float(gpus * HOURS_A_MONTH)
