"""Selector, resource key and tolerations of each placement, as NVIDIA's device plugin and GPU operator name them."""

from typing import Any

import pulumi_kubernetes as k8s
import pytest
from pydantic import TypeAdapter

from components import Place, evaluate
from components.evaluate import KubernetesObject
from components.gpu_placement import GpuPlacement
from stacks.definition.base import Resources
from stacks.definition.placement import Placement

from .objects import named

PRODUCT = "NVIDIA-A100-SXM4-80GB"
PLACE = Place("env", "ns")


def placed(placement: dict[str, Any]) -> list[KubernetesObject]:
    """A pod with this placement, and what else it needs."""
    args: Placement = TypeAdapter(Placement).validate_python(placement, strict=True)

    def program() -> None:
        made = GpuPlacement("p", args, PLACE, "server-p", PLACE.labels("triton"))
        resources = made.resources(Resources(cpu="1", memory="1Gi"))
        container = k8s.core.v1.ContainerArgs(name="triton", resources=resources)
        spec = k8s.core.v1.PodSpecArgs(
            containers=[container],
            node_selector=made.node_selector({"pool": "gpu"}),
            tolerations=made.tolerations([]),
            resource_claims=made.resource_claims,
        )
        k8s.core.v1.Pod("pod", metadata=PLACE.metadata("pod", {}), spec=spec)

    return evaluate(program)


@pytest.mark.parametrize(
    ("placement", "selector", "limit"),
    [
        ({"kind": "mig", "profile": "1g.10gb", "product": PRODUCT}, {"nvidia.com/gpu.product": PRODUCT,
         "nvidia.com/mig.strategy": "mixed", "nvidia.com/mig.config.state": "success"},
         {"nvidia.com/mig-1g.10gb": "1"}),
        ({"kind": "mig", "profile": "3g.40gb"},
         {"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig.config.state": "success"},
         {"nvidia.com/mig-3g.40gb": "1"}),
        ({"kind": "mig", "profile": "1g.10gb", "product": PRODUCT, "strategy": "single"},
         {"nvidia.com/gpu.product": f"{PRODUCT}-MIG-1g.10gb", "nvidia.com/mig.strategy": "single",
         "nvidia.com/mig.config.state": "success"}, {"nvidia.com/gpu": "1"}),
        ({"kind": "gpu", "count": 2, "product": PRODUCT}, {"nvidia.com/gpu.product": PRODUCT}, {"nvidia.com/gpu": "2"}),
        ({"kind": "gpu"}, {}, {"nvidia.com/gpu": "1"}),
        ({"kind": "time-slicing", "product": PRODUCT},
         {"nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.sharing-strategy": "time-slicing"},
         {"nvidia.com/gpu.shared": "1"}),
        ({"kind": "mps", "product": PRODUCT, "renamed": False},
         {"nvidia.com/gpu.product": f"{PRODUCT}-SHARED", "nvidia.com/gpu.sharing-strategy": "mps"},
         {"nvidia.com/gpu": "1"}),
        ({"kind": "dra", "profile": "1g.10gb"}, {}, {}),
        ({"kind": "cpu"}, {}, {}),
    ],
)  # fmt: skip
def test_a_placement_gives_its_selector_and_its_resource(
    placement: dict[str, Any], selector: dict[str, str], limit: dict[str, str]
) -> None:
    spec = named(placed(placement), "Pod", "pod")["spec"]
    assert spec["nodeSelector"] == {"pool": "gpu", **selector}
    limits = spec["containers"][0]["resources"]["limits"]
    assert {key: value for key, value in limits.items() if key.startswith("nvidia.com/")} == limit
    tolerated = [taint["key"] for taint in spec.get("tolerations", [])]
    assert tolerated == ([] if placement["kind"] == "cpu" else ["nvidia.com/gpu"])


def test_a_dra_device_is_claimed_by_class_and_selected_by_profile_and_product() -> None:
    objects = placed({"kind": "dra", "profile": "1g.10gb", "product": PRODUCT})
    template = named(objects, "ResourceClaimTemplate", "server-p-gpu")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "mig.nvidia.com",
        "selectors": [
            {"cel": {"expression": "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"}},
            {
                "cel": {
                    "expression": f"device.attributes['gpu.nvidia.com'].productName.replace(' ', '-') == '{PRODUCT}'"
                }
            },
        ],
    }
    spec = named(objects, "Pod", "pod")["spec"]
    assert spec["resourceClaims"] == [{"name": request["name"], "resourceClaimTemplateName": "server-p-gpu"}]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": request["name"]}]
