from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from stacks.definition.gpu_products import PRODUCTS, gpu_bytes, gpu_product, slice_bytes
from stacks.definition.mig_cuts import filled, part_of_gpu
from stacks.definition.placement import GpuNodes
from stacks.devices import Device, inventory
from tests import mig_parted

GB = 10**9
LABELS = {
    "NVIDIA-A30": "A30", "NVIDIA-A100-SXM4-40GB": "A100-40GB", "NVIDIA-A100-PCIE-40GB": "A100-40GB",
    "A100-SXM4-40GB": "A100-40GB", "NVIDIA-A800-40GB-Active": "A100-40GB", "NVIDIA-A100-SXM4-80GB": "A100-80GB",
    "NVIDIA-A100-80GB-PCIe": "A100-80GB", "NVIDIA-H100-80GB-HBM3": "H100-80GB", "NVIDIA-H100-PCIe": "H100-80GB",
    "NVIDIA-H800": "H100-80GB", "NVIDIA-H100-NVL": "H100-94GB", "NVIDIA-H20": "H100-96GB",
    "NVIDIA-GH200-480GB": "H100-96GB", "NVIDIA-GH200-120GB": "H100-96GB", "NVIDIA-H200": "H200-141GB",
    "NVIDIA-H200-NVL": "H200-141GB", "NVIDIA-GH200-144G-HBM3e": "GH200-144GB", "NVIDIA-B200": "B200",
    "NVIDIA-GB200": "GB200", "NVIDIA-B300-SXM6-AC": "B300", "NVIDIA-GB300": "GB300",
    "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition": "RTX-PRO-6000", "NVIDIA-A10G": "A10G",
    "NVIDIA-L4": "L4", "NVIDIA-L40": "L40", "NVIDIA-L40S": "L40S", "Tesla-T4": "T4",
    "Tesla-V100-SXM2-16GB": "V100-16GB", "Tesla-V100-PCIE-32GB": "V100-32GB",
}  # fmt: skip
# Other GPUs, or the same with other memory, whatever number stands in the label.
UNKNOWN = (
    "NVIDIA-H100-64GB", "NVIDIA-A100-SXM-64GB", "NVIDIA-A100X", "NVIDIA-A30X", "NVIDIA-H20-3e", "NVIDIA-GH200-999GB",
    "NVIDIA-GB300-WS", "NVIDIA-GB10", "NVIDIA-A30-24C", "GRID-A100D-80C", "NVIDIA-Foo-48GB", "Quadro-P4000-8GB",
    "NVIDIA-RTX-PRO-5000-Blackwell", "NVIDIA-L4S", "NVIDIA-H300-160GB", "x", "",
)  # fmt: skip


def full_cuts(label: str) -> Iterator[mig_parted.Cut]:
    """Yield complete cuts, to which no other slice can be added: public ones, and filled ones."""
    product = gpu_product(label)
    assert product is not None
    yield from (filled(product, cut, product.plain) for cut in mig_parted.cuts(label))


@pytest.mark.parametrize(("label", "name"), [*LABELS.items(), *((label, None) for label in UNKNOWN)])
def test_a_node_label_identifies_its_product_and_no_other(label: str, name: str | None) -> None:
    found = gpu_product(label)
    assert (found.name if found else None) == name


def test_every_product_of_the_public_layouts_is_known_with_exactly_its_profiles() -> None:
    for label, most in mig_parted.MOST.items():
        product = gpu_product(label)
        assert product is not None, label
        assert {*product.profiles} == {*most}
        assert {profile: filled(product, {}, [profile])[profile] for profile in product.profiles} == most


@pytest.mark.parametrize(
    ("label", "layouts"), [(label, each) for label, several in mig_parted.SEVERAL.items() for each in several], ids=str
)
def test_a_definition_may_cut_the_gpus_of_a_node_as_every_public_list_of_layouts_does(
    label: str, layouts: Sequence[tuple[int, mig_parted.Cut]]
) -> None:
    mig = tuple({"gpus": gpus, "slices": cut} for gpus, cut in layouts)
    nodes = GpuNodes.model_validate({"product": label, "nodes": 1, "perNode": 8, "mig": mig})
    expected = Counter({(Device("gpu"), label): 8 - sum(gpus for gpus, _ in layouts)})
    for gpus, cut in layouts:
        expected.update({(Device("mig", profile, "mixed"), label): gpus * count for profile, count in cut.items()})
    assert inventory([nodes]) == expected


@pytest.mark.parametrize("label", mig_parted.MOST)
def test_the_parts_of_a_full_cut_sum_to_the_gpu(label: str) -> None:
    product = gpu_product(label)
    assert product is not None
    for cut in full_cuts(label):
        assert sum(part_of_gpu(product, profile, cut) * count for profile, count in cut.items()) == pytest.approx(1)
        assert sum(product.slice_bytes(profile) * count for profile, count in cut.items()) <= product.bytes


def test_a_slice_of_an_unknown_product_or_profile_has_no_size() -> None:
    assert gpu_bytes("NVIDIA-Foo-48GB") is None
    assert slice_bytes("1g.10gb", "NVIDIA-Foo-80GB") is None
    assert slice_bytes("1g.11gb") is None
    assert slice_bytes("1g.10gb", "NVIDIA-A30") is None
    assert slice_bytes("1g.10gb") == 10 * GB


def test_products_that_mig_cannot_cut_have_no_profiles() -> None:
    assert {each.name for each in PRODUCTS if not each.profiles} >= {"L4", "L40S", "T4", "A10G", "V100-16GB"}
