"""Prices of GPUs: from the inventory, or a file of the user's own, each with its source and its day. None is ours."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from pydantic import ValidationError

from policies.guardrails.money import HOURS_A_MONTH
from stacks.definition.base import Section
from stacks.definition.gpu_products import gpu_product
from stacks.definition.placement import GpuNodes
from stacks.definition.prices import Price
from stacks.load import frozen, load
from stacks.problems import DefinitionError
from stacks.schema_errors import problems_from

from .slices import Gpu, find_gpu


class Prices(Section):
    """A file of prices."""

    prices: dict[str, Price]
    """Of one whole GPU, by its name as --gpu takes it, or its node label."""

    def of(self, gpu: Gpu) -> Price | None:
        """Return the price of a GPU, that of its very label first; None where there is none."""
        alike = [price for name, price in self.prices.items() if _is_of(name, gpu)]
        return self._of_label(gpu.label or gpu.name) or next(iter(alike), None)

    def of_product(self, label: str) -> Price | None:
        """Return the price of a GPU by its node label, also of one that is not known otherwise."""
        return self.of(find_gpu(label)) if gpu_product(label) else self._of_label(label)

    def _of_label(self, label: str) -> Price | None:
        return next((price for name, price in self.prices.items() if name.casefold() == label.casefold()), None)


def _is_of(name: str, gpu: Gpu) -> bool:
    return gpu_product(name) == gpu.product or name.casefold() == gpu.name.casefold()


def read_prices(path: Path) -> Prices:
    """Read a file of prices; DefinitionError, with every mistake and its line, for one that cannot be used."""
    document = load(path)
    try:
        return Prices.model_validate(frozen(document.tree))
    except ValidationError as error:
        raise DefinitionError(problems_from(error, document, Prices)) from None


def prices_of(inventory: Iterable[GpuNodes]) -> Prices:
    """Return the prices that an inventory has; of a product with several the first."""
    found: dict[str, Price] = {}
    for group in inventory:
        if group.price is not None:
            found.setdefault(group.product, group.price)
    return Prices(prices=found)


def gpu_hours(gpus: Fraction) -> float:
    """Return the hours a month of so many GPUs."""
    return float(gpus * HOURS_A_MONTH)
