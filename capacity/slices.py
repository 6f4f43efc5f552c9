"""The GPU to plan for: its possible slices, their share of it, and its price."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from stacks.command import none_such
from stacks.definition.gpu_products import PRODUCTS, GpuProduct, gpu_product
from stacks.definition.mig_cuts import filled, part_of_gpu
from stacks.definition.money import HOURS_A_MONTH
from stacks.definition.placement import GpuNodes
from stacks.definition.prices import Price

DEFAULT_GPU = "a100-80gb"


@dataclass(frozen=True, order=True)
class GpuSlice:
    """A MIG slice, or a whole GPU."""

    memory_bytes: int
    share: Fraction
    """Share of a GPU: the larger of its shares of compute slices and of memory slices."""
    profile: str  # Its MIG profile. Empty for a whole GPU.

    def __str__(self) -> str:
        return self.profile or "whole GPU"


@dataclass(frozen=True)
class Gpu:
    """A GPU product."""

    name: str
    """The usual name: `A100-80GB`."""
    label: str | None
    """Its node label `nvidia.com/gpu.product`, if it is known."""
    product: GpuProduct
    slices: tuple[GpuSlice, ...]
    """Possible slices, smallest share first, then the whole GPU. MIG slices of a whole GPU are left out."""
    strategy: Literal["mixed", "single", "dra"] = "mixed"
    """How the inventory exposes its slices."""

    def most(self, one: GpuSlice) -> int:
        return filled(self.product, {}, [one.profile])[one.profile] if one.profile else 1


def find_gpu(name: str, labels: Iterable[str] = ()) -> Gpu:
    """Return the GPU of a short name (`a100-80gb`) or of a node label. Raises CommandError with all known names.
    `labels` are those of an inventory. The first one of the same product becomes the GPU's label."""
    product = next((each for each in PRODUCTS if each.name.casefold() == name.casefold()), None)
    label = next((each for each in labels if product and gpu_product(each) == product), None)
    if product is None and (product := gpu_product(name)) is not None:
        label = name
    if product is None:
        known = [product.name for product in PRODUCTS]
        raise none_such(f"There is no GPU {name!r}", name, known)
    cut = (_slice(product, profile) for profile in product.plain)
    parts = sorted((one for one in cut if one.share < 1), key=lambda one: (one.share, one.memory_bytes))
    return Gpu(product.name, label, product, (*parts, GpuSlice(product.bytes, Fraction(1), "")))


def _slice(product: GpuProduct, profile: str) -> GpuSlice:
    share = Fraction(part_of_gpu(product, profile)).limit_denominator(math.prod(product.slices))
    return GpuSlice(product.slice_bytes(profile), share, profile)


def price_of(inventory: Iterable[GpuNodes], label: str) -> Price | None:
    """Return the price of a GPU by its node label, or by another label of the same product."""
    prices = [(group.product, group.price) for group in inventory if group.price is not None]
    exact = [price for product, price in prices if product == label]
    alike = [price for product, price in prices if gpu_product(label) and gpu_product(product) == gpu_product(label)]
    return next(iter([*exact, *alike]), None)


def gpu_hours(gpus: Fraction) -> float:
    """Return the GPU-hours of a month."""
    return float(gpus * HOURS_A_MONTH)
