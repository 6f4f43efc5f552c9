"""GPU products: their labels, their memory, and the profiles of slices into which MIG cuts them.

Sources: NVIDIA's mig-parted `config-default.yaml` (profiles), NVIDIA MIG User Guide (memory slices).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_COMPUTE = re.compile(r"^(?P<compute>[1-7])g\.(?P<memory>[0-9]+)gb$")


@dataclass(frozen=True)
class GpuProduct:
    """A GPU that MIG can cut; `memory_gb` is the whole GPU's memory in decimal gigabytes."""

    name: str
    labels: re.Pattern[str]
    memory_gb: int
    profiles: Mapping[str, int]
    """Profile → memory slices it takes."""


def _product(name: str, labels: str, memory_gb: int, sizes: tuple[int, ...]) -> GpuProduct:
    one, double, half, whole = sizes
    profiles = {
        f"1g.{one}gb": 1,
        f"1g.{double}gb": 2,
        f"2g.{double}gb": 2,
        f"3g.{half}gb": 4,
        f"4g.{half}gb": 4,
        f"7g.{whole}gb": 8,
    }
    return GpuProduct(name, re.compile(labels), memory_gb, profiles)


PRODUCTS: Final = (
    _product("A100-40GB", r"\bA100\b.*40GB", 40, (5, 10, 20, 40)),
    _product("A100-80GB", r"\bA100\b.*80GB", 80, (10, 20, 40, 80)),
    _product("H100-80GB", r"\bH100\b(?!.*(64GB|94GB|96GB|NVL))", 80, (10, 20, 40, 80)),
    _product("H200-141GB", r"\bH200\b", 141, (18, 35, 71, 141)),
    _product("B200", r"\bB200\b", 180, (23, 45, 90, 180)),
)


def gpu_product(label: str) -> GpuProduct | None:
    """Return the product that a node label `nvidia.com/gpu.product` stands for; None when it is not in the table."""
    return next((product for product in PRODUCTS if product.labels.search(label)), None)


def profile_bytes(profile: str) -> int:
    """Return the memory of a slice in bytes, by the number in its profile's name (decimal gigabytes)."""
    match = _COMPUTE.match(profile)
    assert match is not None, profile
    return int(match["memory"]) * 10**9


NOT_CUT: Final[Mapping[str, int]] = {
    "NVIDIA-A10": 24, "NVIDIA-A10G": 24, "NVIDIA-L4": 24, "NVIDIA-L40": 48, "NVIDIA-L40S": 48, "Tesla-T4": 16,
}  # fmt: skip
"""Memory in decimal gigabytes of products that MIG cannot cut, where their label does not say it."""


def gpu_bytes(label: str) -> int | None:
    """Return the memory of a whole GPU by its node label; None for one that is not known and does not say it."""
    product, said = gpu_product(label), re.search(r"-([0-9]+)GB(-|$)", label)
    if product is None and said is None and label not in NOT_CUT:
        return None
    return (product.memory_gb if product else int(said[1]) if said else NOT_CUT[label]) * 10**9
