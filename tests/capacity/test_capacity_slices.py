from fractions import Fraction

import pytest

from capacity.slices import find_gpu, price_of
from stacks.definition.placement import GpuNodes

A100 = "NVIDIA-A100-SXM4-80GB"


@pytest.mark.parametrize("name", ["a100-80gb", "A100-80GB", A100])
def test_a_gpu_has_a_short_name_and_the_label_that_its_nodes_carry(name: str) -> None:
    gpu = find_gpu(name, ["NVIDIA-L4", A100])
    assert (gpu.name, gpu.label) == ("A100-80GB", A100)
    assert {str(one): (one.share, gpu.most(one)) for one in gpu.slices} == {
        "1g.10gb": (Fraction(1, 7), 7),
        "1g.20gb": (Fraction(1, 4), 4),
        "2g.20gb": (Fraction(2, 7), 3),
        "3g.40gb": (Fraction(1, 2), 2),
        "4g.40gb": (Fraction(4, 7), 1),
        "whole GPU": (Fraction(1), 1),
    }


def test_a_gpu_that_mig_cannot_cut_is_planned_for_as_a_whole() -> None:
    assert [(gpu.name, gpu.label) for gpu in map(find_gpu, ("l4", "T4", "NVIDIA-L4"))] == [
        ("L4", None),
        ("T4", None),
        ("L4", "NVIDIA-L4"),
    ]
    assert [(str(one), one.memory_bytes) for one in find_gpu("l4").slices] == [("whole GPU", 24 * 10**9)]


def nodes(product: str, per_hour: float | None) -> GpuNodes:
    price = {"perHour": per_hour, "source": "a fictional list", "asOf": "2026-01-01"}
    tree = {"nodes": 1, "product": product, "perNode": 1, **({"price": price} if per_hour else {})}
    return GpuNodes.model_validate(tree)


INVENTORY = (
    nodes("NVIDIA-A100-SXM4-80GB", None),
    nodes("NVIDIA-A100-SXM4-80GB", 7),
    nodes("NVIDIA-A100-80GB-PCIe", 6),
    nodes("Unheard-Of", 1),
)


@pytest.mark.parametrize(
    ("label", "per_hour"),
    [
        ("NVIDIA-A100-80GB-PCIe", 6),
        ("NVIDIA-A100-SXM4-80GB", 7),
        ("NVIDIA-A100-PCIE-80GB", 7),
        ("Unheard-Of", 1),
        ("Another", None),
        ("NVIDIA-L4", None),
    ],
)
def test_the_price_of_the_very_label_comes_first(label: str, per_hour: float | None) -> None:
    price = price_of(INVENTORY, label)
    assert (price and price.per_hour) == per_hour
