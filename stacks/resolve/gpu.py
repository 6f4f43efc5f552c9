"""From a placement to node selector, resource key and tolerations, together.

Sources of labels and resource names: NVIDIA's k8s-device-plugin, GPU feature discovery and GPU operator.
"""

from typing import Any

from components import DeviceClaimArgs, GpuPlacementArgs, TolerationArgs

from ..definition.placement import (
    CpuPlacement,
    DraPlacement,
    GpuPlacement,
    MigPlacement,
    Placement,
    SharedGpuPlacement,
)
from ..definition.servers import Pool
from .containers import container_resources, tolerations

PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"
# By convention GPU nodes carry this taint, with one value or another.
GPU_TOLERATION = TolerationArgs(key=GPU, operator="Exists", effect="NoSchedule")


def gpu_placement(pool: Pool, name: str) -> GpuPlacementArgs:
    """Return where a pool's pods may run, and what their Triton asks for; `name` is the pool's object name."""
    selector = {**_selector(pool.placement), **pool.node_selector}
    on_gpu = not isinstance(pool.placement, CpuPlacement)
    resources: dict[str, Any] = container_resources(pool.resources, _devices(pool.placement))
    claim = _claim(pool.placement, name)
    if claim is not None:
        resources["claims"] = [{"name": "gpu"}]
    return GpuPlacementArgs(
        node_selector=selector or None,
        tolerations=[*([GPU_TOLERATION] if on_gpu else []), *tolerations(pool.tolerations)],
        resources=resources,
        device_claim=claim,
    )


def _selector(placement: Placement) -> dict[str, str]:
    match placement:
        case MigPlacement(strategy="single"):
            # With strategy single the resource is nvidia.com/gpu: only the product's label tells the profile.
            return {
                PRODUCT: f"{placement.product}-MIG-{placement.profile}",
                "nvidia.com/mig.strategy": "single",
                "nvidia.com/mig.config.state": "success",
            }
        case MigPlacement():
            return {
                **_product(placement.product),
                "nvidia.com/mig.strategy": "mixed",
                "nvidia.com/mig.config.state": "success",
            }
        case SharedGpuPlacement():
            label = placement.product and placement.product + ("" if placement.renamed else "-SHARED")
            return {**_product(label), "nvidia.com/gpu.sharing-strategy": placement.kind}
        case GpuPlacement() | DraPlacement():
            return _product(placement.product)
        case CpuPlacement():
            return {}


def _product(label: str | None) -> dict[str, str]:
    return {PRODUCT: label} if label else {}


def _devices(placement: Placement) -> dict[str, str]:
    match placement:
        case MigPlacement(strategy="mixed"):
            return {f"nvidia.com/mig-{placement.profile}": "1"}
        case MigPlacement():
            return {GPU: "1"}
        case GpuPlacement():
            return {GPU: str(placement.count)}
        case SharedGpuPlacement():
            return {f"{GPU}.shared" if placement.renamed else GPU: "1"}
        case CpuPlacement() | DraPlacement():
            return {}


def _claim(placement: Placement, name: str) -> DeviceClaimArgs | None:
    if not isinstance(placement, DraPlacement):
        return None
    selectors = []
    if placement.profile is not None:
        selectors.append(f"device.attributes['gpu.nvidia.com'].profile == '{placement.profile}'")
    if placement.product is not None:
        # The label has dashes where the device's own name has spaces.
        product = "device.attributes['gpu.nvidia.com'].productName.replace(' ', '-')"
        selectors.append(f"{product} == '{placement.product}'")
    return DeviceClaimArgs(template_name=f"{name}-gpu", device_class=placement.device_class, selectors=selectors)
