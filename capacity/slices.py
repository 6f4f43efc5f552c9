"""The GPU that is planned for: what it can be cut into, and what share of it each slice takes."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from stacks.command import none_such
from stacks.definition.gpu_products import (
    NOT_CUT,
    PRODUCTS,
    GpuProduct,
    gpu_bytes,
    gpu_product,
    profile_bytes,
)
from stacks.definition.mig_cuts import COMPUTE_SLICES, MEMORY_SLICES, filled, part_of_gpu

DEFAULT_GPU = "a100-80gb"


@dataclass(frozen=True, order=True)
class GpuSlice:
    """A MIG slice, or a whole GPU."""

    memory_bytes: int
    share: Fraction
    """Of a GPU: the larger of its share of the compute slices (sevenths) and of the memory slices (eighths)."""
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
    product: GpuProduct | None  # None: MIG cannot cut it.
    slices: tuple[GpuSlice, ...]
    """What it can be cut into, the smallest share first, and the whole of it; not what is all of it as a MIG slice."""
    strategy: Literal["mixed", "single", "dra"] = "mixed"
    """How the inventory hands its slices out."""

    def most(self, one: GpuSlice) -> int:
        """Return how many such slices one GPU can have."""
        if self.product is None or not one.profile:
            return 1
        return filled(self.product, {}, [one.profile])[one.profile]


def find_gpu(said: str, labels: Iterable[str] = ()) -> Gpu:
    """Return the GPU of a short name (`a100-80gb`) or of a node label; CommandError, with all known, for any other.

    `labels` are those of an inventory: the first one that is of the same product is the GPU's.
    """
    products = {product.name.casefold(): product for product in PRODUCTS}
    uncut = {_short(label).casefold(): label for label in NOT_CUT}
    if (product := products.get(said.casefold())) is not None:
        label = next((each for each in labels if gpu_product(each) == product), None)
    elif gpu_bytes(label := uncut.get(said.casefold(), said)) is not None:
        product = gpu_product(label)
    else:
        known = [*(product.name for product in PRODUCTS), *map(_short, NOT_CUT)]
        near = next((name for name in known if name.startswith(said.upper())), said.upper())
        raise none_such(f"There is no GPU {said!r}", near, known)
    memory = product.memory_gb * 10**9 if product else gpu_bytes(str(label))
    assert memory is not None
    cut = [_slice(product, profile) for profile in product.profiles] if product else []
    parts = sorted((one for one in cut if one.share < 1), key=lambda one: (one.share, one.memory_bytes))
    name = product.name if product else _short(str(label))
    return Gpu(name, label, product, (*parts, GpuSlice(memory, Fraction(1), "")))


def _slice(product: GpuProduct, profile: str) -> GpuSlice:
    share = Fraction(part_of_gpu(product, profile)).limit_denominator(COMPUTE_SLICES * MEMORY_SLICES)
    return GpuSlice(profile_bytes(profile), share, profile)


def _short(label: str) -> str:
    return label.removeprefix("NVIDIA-").removeprefix("Tesla-")
