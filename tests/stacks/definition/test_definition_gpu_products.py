"""What node labels say about GPUs."""

import pytest

from stacks.definition.gpu_products import PRODUCTS, GpuProduct, gpu_product, profile_bytes

GB = 10**9
LABELS: dict[str, str | None] = {
    "NVIDIA-A100-SXM4-40GB": "A100-40GB", "NVIDIA-A100-PCIE-40GB": "A100-40GB", "A100-SXM4-40GB": "A100-40GB",
    "NVIDIA-A100-SXM4-80GB": "A100-80GB", "NVIDIA-A100-80GB-PCIe": "A100-80GB", "NVIDIA-H100-80GB-HBM3": "H100-80GB",
    "NVIDIA-H100-PCIe": "H100-80GB", "NVIDIA-H200": "H200-141GB", "NVIDIA-H200-NVL": "H200-141GB",
    "NVIDIA-B200": "B200",
}  # fmt: skip
# Other GPUs, or the same with other memory: nothing is known about them, so nothing is refused.
UNKNOWN = (
    "NVIDIA-H100-NVL", "NVIDIA-GH200-480GB", "NVIDIA-GB200", "NVIDIA-A30", "NVIDIA-L40S", "Tesla-T4", "x",
)  # fmt: skip


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_the_profiles_of_a_product_take_their_part_of_its_memory(product: GpuProduct) -> None:
    for profile, size in product.profiles.items():
        assert profile_bytes(profile) <= product.memory_gb * GB * size / 8 * 1.05


@pytest.mark.parametrize(("label", "name"), [*LABELS.items(), *((label, None) for label in UNKNOWN)])
def test_a_node_label_tells_its_product_and_no_other_gpu_is_taken_for_one(label: str, name: str | None) -> None:
    found = gpu_product(label)
    assert (found.name if found else None) == name
