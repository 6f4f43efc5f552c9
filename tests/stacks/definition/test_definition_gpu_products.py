"""What NVIDIA's MIG allows, against the table in the facts."""

import itertools

import pytest

from stacks.definition.gpu_products import (
    PRODUCTS,
    GpuProduct,
    fits_on_one_gpu,
    gpu_product,
    layout_that_fits,
    profile_bytes,
)

# GPU → profile → how many fit on one GPU (NVIDIA mig-parted, config-default.yaml).
MOST = {
    "A100-40GB": {"1g.5gb": 7, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1},
    "A100-80GB": {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1},
    "H100-80GB": {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1},
    "H200-141GB": {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1},
    "B200": {"1g.23gb": 7, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1},
}
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


def product(name: str) -> GpuProduct:
    (found,) = (each for each in PRODUCTS if each.name == name)
    return found


@pytest.mark.parametrize("name", MOST)
def test_as_many_slices_of_one_profile_fit_on_a_gpu_as_the_facts_say(name: str) -> None:
    gpu = product(name)
    assert {
        profile: max(count for count in range(12) if fits_on_one_gpu(gpu, {profile: count})) for profile in gpu.profiles
    } == MOST[name]
    assert all(profile_bytes(profile) <= gpu.memory_gb * GB * size / 8 * 1.05 for profile, size in gpu.profiles.items())


@pytest.mark.parametrize(("label", "name"), [*LABELS.items(), *((label, None) for label in UNKNOWN)])
def test_a_node_label_tells_its_product_and_no_other_gpu_is_taken_for_one(label: str, name: str | None) -> None:
    found = gpu_product(label)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("slices", "fit"),
    [
        # NVIDIA MIG User Guide, "MIG device configurations"; the balanced layout is mig-parted's `all-balanced`.
        ({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}, True),
        ({"4g.40gb": 1, "3g.40gb": 1}, True),
        ({"4g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1}, True),
        ({"2g.20gb": 3, "1g.10gb": 1}, True),
        ({"1g.20gb": 1, "1g.10gb": 5}, True),
        ({"4g.40gb": 2}, False),
        ({"7g.80gb": 1, "1g.10gb": 1}, False),
        ({"4g.40gb": 1, "1g.10gb": 4}, False),  # the last memory slice has no compute slice
        ({"2g.20gb": 3, "1g.10gb": 2}, False),
        ({"4g.40gb": 1, "2g.20gb": 2}, False),
    ],
)
def test_slices_of_several_profiles_fit_when_the_driver_has_a_place_for_each(slices: dict[str, int], fit: bool) -> None:
    assert fits_on_one_gpu(product("A100-80GB"), slices) is fit


@pytest.mark.parametrize("name", MOST)
def test_what_fits_takes_no_more_than_seven_compute_and_eight_memory_slices(name: str) -> None:
    gpu = product(name)
    fitting = 0
    for counts in itertools.product(range(4), repeat=len(gpu.profiles)):
        slices = dict(zip(gpu.profiles, counts, strict=True))
        if fits_on_one_gpu(gpu, slices):
            fitting += 1
            assert sum(int(profile[0]) * count for profile, count in slices.items()) <= 7
            assert sum(gpu.profiles[profile] * count for profile, count in slices.items()) <= 8
            fewer = ({**slices, profile: max(0, count - 1)} for profile, count in slices.items())
            assert all(fits_on_one_gpu(gpu, each) for each in fewer)
    assert fitting > 30


@pytest.mark.parametrize("name", MOST)
def test_the_layout_that_is_proposed_fits_and_leaves_out_no_slice_that_would_fit_too(name: str) -> None:
    gpu = product(name)
    for counts in itertools.product(range(3), repeat=len(gpu.profiles)):
        wanted = {profile: count for profile, count in zip(gpu.profiles, counts, strict=True) if count}
        layout = layout_that_fits(gpu, wanted)
        assert fits_on_one_gpu(gpu, layout)
        assert all(layout[profile] <= wanted[profile] for profile in layout)
        more = ({**layout, profile: layout.get(profile, 0) + 1} for profile in wanted)
        assert not any(fits_on_one_gpu(gpu, each) for each in more if _within(each, wanted))


def _within(slices: dict[str, int], wanted: dict[str, int]) -> bool:
    return all(count <= wanted[profile] for profile, count in slices.items())
