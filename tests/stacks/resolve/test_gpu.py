"""Selector, resource key and tolerations of each placement, as NVIDIA's device plugin and GPU operator name them."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from stacks.definition.placement import Placement
from stacks.definition.servers import Pool, Preload
from stacks.resolve.gpu import gpu_placement

PRODUCT = "NVIDIA-A100-SXM4-80GB"


def placed(placement: dict[str, Any]) -> Any:
    pool = Pool.model_validate({"name": "p", "loading": {"mode": "preload"}, "placement": placement})
    assert isinstance(pool.loading, Preload)
    TypeAdapter(Placement).validate_python(placement, strict=True)
    return gpu_placement(pool, "server-p")


@pytest.mark.parametrize(
    ("placement", "selector", "limit"),
    [
        (
            {"kind": "mig", "profile": "1g.10gb", "product": PRODUCT},
            {
                "nvidia.com/gpu.product": PRODUCT,
                "nvidia.com/mig.strategy": "mixed",
                "nvidia.com/mig.config.state": "success",
            },
            {"nvidia.com/mig-1g.10gb": "1"},
        ),
        (
            {"kind": "mig", "profile": "3g.40gb"},
            {"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig.config.state": "success"},
            {"nvidia.com/mig-3g.40gb": "1"},
        ),
        (
            {"kind": "mig", "profile": "1g.10gb", "product": PRODUCT, "strategy": "single"},
            {
                "nvidia.com/gpu.product": f"{PRODUCT}-MIG-1g.10gb",
                "nvidia.com/mig.strategy": "single",
                "nvidia.com/mig.config.state": "success",
            },
            {"nvidia.com/gpu": "1"},
        ),
        ({"kind": "gpu", "count": 2, "product": PRODUCT}, {"nvidia.com/gpu.product": PRODUCT}, {"nvidia.com/gpu": "2"}),
        ({"kind": "gpu"}, None, {"nvidia.com/gpu": "1"}),
        (
            {"kind": "time-slicing", "product": PRODUCT},
            {"nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.sharing-strategy": "time-slicing"},
            {"nvidia.com/gpu.shared": "1"},
        ),
        (
            {"kind": "mps", "product": PRODUCT, "renamed": False},
            {"nvidia.com/gpu.product": f"{PRODUCT}-SHARED", "nvidia.com/gpu.sharing-strategy": "mps"},
            {"nvidia.com/gpu": "1"},
        ),
        ({"kind": "dra", "profile": "1g.10gb"}, None, {}),
        ({"kind": "cpu"}, None, {}),
    ],
)
def test_a_placement_gives_its_selector_and_its_resource(
    placement: dict[str, Any], selector: dict[str, str] | None, limit: dict[str, str]
) -> None:
    found = placed(placement)
    assert found.node_selector == selector
    assert {key: value for key, value in found.resources["limits"].items() if key.startswith("nvidia.com/")} == limit
    assert [taint.key for taint in found.tolerations] == ([] if placement["kind"] == "cpu" else ["nvidia.com/gpu"])


def test_a_dra_device_is_claimed_by_class_and_selected_by_profile_and_product() -> None:
    claim = placed({"kind": "dra", "profile": "1g.10gb", "product": PRODUCT}).device_claim
    assert claim.device_class == "mig.nvidia.com"
    assert claim.template_name == "server-p-gpu"
    assert claim.selectors == [
        "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'",
        f"device.attributes['gpu.nvidia.com'].productName.replace(' ', '-') == '{PRODUCT}'",
    ]
