"""Prices of GPUs, from the inventory: each with its source and its day. None is ours."""

from collections.abc import Iterable
from fractions import Fraction

from policies.guardrails.money import HOURS_A_MONTH
from stacks.definition.gpu_products import gpu_product
from stacks.definition.placement import GpuNodes
from stacks.definition.prices import Price


def price_of(inventory: Iterable[GpuNodes], label: str) -> Price | None:
    """Return the price of a GPU by its node label; without one that of another label of the same product."""
    prices = [(group.product, group.price) for group in inventory if group.price is not None]
    exact = [price for product, price in prices if product == label]
    alike = [price for product, price in prices if gpu_product(label) and gpu_product(product) == gpu_product(label)]
    return next(iter([*exact, *alike]), None)


def gpu_hours(gpus: Fraction) -> float:
    """Return the hours a month of so many GPUs."""
    return float(gpus * HOURS_A_MONTH)
