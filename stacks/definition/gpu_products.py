"""NVIDIA's GPUs: the node labels of each product, its memory, and its MIG profiles.

Sources: NVIDIA MIG User Guide ("Supported GPUs", "Supported MIG Profiles"), mig-parted's `config-default.yaml`, and GPU
Feature Discovery, which derives the label from the product's name. Tidegate never reads a number from a label, because
the 480GB of a GH200 is its CPU's memory. A product without an entry here has no numbers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GB: Final = 10**9
MEDIA = "+me"
"""In the profile of a slice with media engines. A GPU has engines for one such slice."""


@dataclass(frozen=True)
class GpuProduct:
    """A GPU product. `memory_gb` is the memory of the whole GPU in decimal gigabytes."""

    name: str
    labels: re.Pattern[str]
    memory_gb: int
    profiles: Mapping[str, tuple[int, int]]
    """MIG profile → its compute slices and memory slices. Empty without MIG support."""

    @property
    def slices(self) -> tuple[int, int]:
        """Return the compute slices and memory slices of the whole GPU."""
        return max(self.profiles.values(), default=(1, 1))

    @property
    def plain(self) -> tuple[str, ...]:
        """Return the profiles that Tidegate recommends: one of each size, without a choice of engines."""
        by_size = {size: profile for profile, size in [*self.profiles.items()][::-1] if profile.endswith("gb")}
        return tuple(profile for profile in self.profiles if by_size.get(self.profiles[profile]) == profile)

    @property
    def bytes(self) -> int:
        return self.memory_gb * GB

    def slice_bytes(self, profile: str) -> int:
        """Return the memory of a slice in bytes. The number in a profile's name is rounded, sometimes up."""
        return self.bytes * self.profiles[profile][1] // self.slices[1]


_FORM: Final = r"(-(SXM\d?|PCIe|HBM\d[eE]?|AC|Active))*"  # Other parts of labels that are the same GPU.


def _product(
    name: str, labels: str, memory_gb: int, profiles: Mapping[str, tuple[int, int]] | None = None
) -> GpuProduct:
    pattern = re.compile(f"(NVIDIA-|Tesla-)?({labels})", re.IGNORECASE)
    return GpuProduct(name, pattern, memory_gb, profiles or {})


def _sevenths(one: int, double: int, half: int, whole: int) -> dict[str, tuple[int, int]]:
    """Return the profiles of a GPU with seven compute slices and eight memory slices, by the memory in their names."""
    return {
        f"1g.{one}gb": (1, 1),
        f"1g.{one}gb+me": (1, 1),
        f"1g.{double}gb": (1, 2),
        f"2g.{double}gb": (2, 2),
        f"3g.{half}gb": (3, 4),
        f"4g.{half}gb": (4, 4),
        f"7g.{whole}gb": (7, 8),
    }


_RTX_PRO_6000: Final = {
    **{f"1g.24gb{engines}": (1, 1) for engines in ("", "+me", "+me.all", "-me", "+gfx")},
    **{f"2g.48gb{engines}": (2, 2) for engines in ("", "+me.all", "-me", "+gfx")},
    **{f"4g.96gb{engines}": (4, 4) for engines in ("", "+gfx")},
}
_A30: Final = {"1g.6gb": (1, 1), "1g.6gb+me": (1, 1), "2g.12gb": (2, 2), "2g.12gb+me": (2, 2), "4g.24gb": (4, 4)}

PRODUCTS: Final = (
    _product("A30", rf"A30{_FORM}", 24, _A30),
    _product("A100-40GB", rf"A[18]00{_FORM}-40GB{_FORM}", 40, _sevenths(5, 10, 20, 40)),
    _product("A100-80GB", rf"A[18]00{_FORM}-80GB{_FORM}", 80, _sevenths(10, 20, 40, 80)),
    _product("H100-80GB", rf"H[18]00{_FORM}(-80GB{_FORM})?", 80, _sevenths(10, 20, 40, 80)),
    _product("H100-94GB", rf"H[18]00(-NVL|{_FORM}-94GB{_FORM})", 94, _sevenths(12, 24, 47, 94)),
    _product(
        "H100-96GB", rf"H[18]00{_FORM}-96GB{_FORM}|H20(-96GB)?|GH200-(96|120|480)GB", 96, _sevenths(12, 24, 48, 96)
    ),
    _product("H200-141GB", rf"H200(-NVL)?{_FORM}(-141GB{_FORM})?", 141, _sevenths(18, 35, 71, 141)),
    _product("GH200-144GB", rf"GH200-144GB?{_FORM}", 144, _sevenths(18, 36, 72, 144)),
    _product("B200", rf"B200{_FORM}", 180, _sevenths(23, 45, 90, 180)),
    # The names of its slices depend on the driver.
    _product("GB200", rf"GB200{_FORM}", 186, {**_sevenths(23, 47, 93, 186), **_sevenths(24, 47, 95, 189)}),
    _product("B300", rf"B300{_FORM}", 269, _sevenths(34, 67, 135, 269)),
    _product("GB300", rf"GB300(-NVL)?{_FORM}", 278, _sevenths(35, 70, 139, 278)),
    _product("RTX-PRO-6000", "RTX-PRO-6000-Blackwell-((Max-Q-)?Workstation|Server)-Edition", 96, _RTX_PRO_6000),
    _product("A2", "A2", 16),
    _product("A10", "A10", 24),
    _product("A10G", "A10G", 24),
    _product("A16", "A16", 16),
    _product("A40", "A40", 48),
    _product("L4", "L4", 24),
    _product("L40", "L40", 48),
    _product("L40S", "L40S", 48),
    _product("RTX-A6000", "RTX-A6000", 48),
    _product("RTX-6000-Ada", "RTX-6000-Ada-Generation", 48),
    _product("T4", "T4", 16),
    _product("V100-16GB", rf"V100{_FORM}-16GB{_FORM}", 16),
    _product("V100-32GB", rf"V100{_FORM}-32GB{_FORM}", 32),
)


def gpu_product(label: str | None) -> GpuProduct | None:
    """Return the product of a node label `nvidia.com/gpu.product`, or None if it is not in the table."""
    return next((product for product in PRODUCTS if product.labels.fullmatch(label or "")), None)


def gpu_bytes(label: str | None) -> int | None:
    """Return the bytes of memory of a whole GPU by its node label, or None if the product is not in the table."""
    product = gpu_product(label)
    return product.bytes if product else None


def slice_bytes(profile: str, label: str | None = None) -> int | None:
    """Return the bytes of memory of a slice, without a product the least of all products with the profile. None if the
    product is not in the table, or does not have the profile."""
    products = PRODUCTS if label is None else filter(None, [gpu_product(label)])
    return min((each.slice_bytes(profile) for each in products if profile in each.profiles), default=None)
