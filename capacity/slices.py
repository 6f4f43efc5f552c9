"""The GPU that is planned for: what it can be cut into, what share of it each slice takes, and its price."""

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
    """Of a GPU: the larger of its parts of the compute slices and of the memory slices."""
    profile: str  # Its MIG profile; empty: a whole GPU.

    def __str__(self) -> str:
        """Its profile, or `whole GPU`."""
        return self.profile or "whole GPU"


@dataclass(frozen=True)
class Gpu:
    """A GPU product."""

    name: str
    """As people say it: `A100-80GB`."""
    label: str | None
    """Its node label `nvidia.com/gpu.product`, where it is known."""
    product: GpuProduct
    slices: tuple[GpuSlice, ...]
    """What it can be cut into, the smallest share first, and the whole of it; not what is all of it as a MIG slice."""
    strategy: Literal["mixed", "single", "dra"] = "mixed"
    """How the inventory hands its slices out."""

    def most(self, one: GpuSlice) -> int:
        """Return how many such slices one GPU can have."""
        return filled(self.product, {}, [one.profile])[one.profile] if one.profile else 1


def find_gpu(said: str, labels: Iterable[str] = ()) -> Gpu:
    """Return the GPU of a short name (`a100-80gb`) or of a node label; CommandError, with all known, for any other.

    `labels` are those of an inventory: the first one that is of the same product is the GPU's.
    """
    product = next((each for each in PRODUCTS if each.name.casefold() == said.casefold()), None)
    label = next((each for each in labels if product and gpu_product(each) == product), None)
    if product is None and (product := gpu_product(said)) is not None:
        label = said
    if product is None:
        known = [product.name for product in PRODUCTS]
        near = next((name for name in known if name.startswith(said.upper())), said.upper())
        raise none_such(f"There is no GPU {said!r}", near, known)
    cut = (_slice(product, profile) for profile in product.plain)
    parts = sorted((one for one in cut if one.share < 1), key=lambda one: (one.share, one.memory_bytes))
    return Gpu(product.name, label, product, (*parts, GpuSlice(product.bytes, Fraction(1), "")))


def _slice(product: GpuProduct, profile: str) -> GpuSlice:
    share = Fraction(part_of_gpu(product, profile)).limit_denominator(math.prod(product.slices))
    return GpuSlice(product.slice_bytes(profile), share, profile)


def price_of(inventory: Iterable[GpuNodes], label: str) -> Price | None:
    """Return the price of a GPU by its node label; without one that of another label of the same product."""
    prices = [(group.product, group.price) for group in inventory if group.price is not None]
    exact = [price for product, price in prices if product == label]
    alike = [price for product, price in prices if gpu_product(label) and gpu_product(product) == gpu_product(label)]
    return next(iter([*exact, *alike]), None)


def gpu_hours(gpus: Fraction) -> float:
    """Return the hours a month of so many GPUs."""
    return float(gpus * HOURS_A_MONTH)
