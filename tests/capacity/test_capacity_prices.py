"""Prices come from the inventory, and from nowhere else. Those here are fictional."""

import pytest

from capacity.prices import price_of
from stacks.definition.placement import GpuNodes


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
