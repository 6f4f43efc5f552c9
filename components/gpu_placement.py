"""GPU placement: one typed value, from which node selector, resource key, tolerations and claims all follow.

Sources of labels and resource names: NVIDIA's k8s-device-plugin, GPU feature discovery and GPU operator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import eviction

from .fields import Count, GpuProduct, Labels, MigProfile, ObjectName
from .place import Place, Texts
from .pods import GPU_TOLERATION, ResourcesArgs, TolerationArgs, container_resources, toleration
from .values import each, equals, joined, merged, needed, number_in, of_kind, some, when, where

PRODUCT = "nvidia.com/gpu.product"
MIG_STRATEGY = "nvidia.com/mig.strategy"
GPU = "nvidia.com/gpu"

CLAIM_NAME = "gpu"
"""Name of the claim inside a pod."""


@dataclass(frozen=True, kw_only=True)
class CpuArgs:
    """No GPU."""

    kind: Literal["cpu"] = "cpu"
    """Runs on any node."""


@dataclass(frozen=True, kw_only=True)
class MigArgs:
    """One MIG slice for each replica."""

    kind: Literal["mig"] = "mig"
    """Runs on a slice of a GPU."""
    profile: MigProfile
    """Profile of the slice, such as 1g.10gb: selector and resource key follow from it."""
    product: GpuProduct | None = None
    """GPU product as its node label `nvidia.com/gpu.product` says it, without the -MIG-… ending; any without."""
    strategy: Literal["mixed", "single"] = "mixed"
    """The device plugin's MIG strategy: mixed names a resource for each profile, single does not."""


@dataclass(frozen=True, kw_only=True)
class WholeGpuArgs:
    """Whole GPUs for each replica."""

    kind: Literal["gpu"] = "gpu"
    """Runs on whole GPUs."""
    count: Count
    """GPUs for each replica."""
    product: GpuProduct | None = None
    """GPU product as its node label `nvidia.com/gpu.product` says it; any without."""


@dataclass(frozen=True, kw_only=True)
class SharedGpuArgs:
    """A share of a GPU by time-slicing or MPS."""

    kind: Literal["time-slicing", "mps"]
    """How the GPU is shared."""
    product: GpuProduct | None = None
    """GPU product as its node label `nvidia.com/gpu.product` says it, without the -SHARED ending; any without."""
    renamed: bool
    """Whether the device plugin renames the shared resource to nvidia.com/gpu.shared (renameByDefault)."""


@dataclass(frozen=True, kw_only=True)
class DraArgs:
    """A device by Dynamic Resource Allocation."""

    kind: Literal["dra"] = "dra"
    """Claims a device."""
    device_class: ObjectName
    """DeviceClass, such as gpu.nvidia.com or mig.nvidia.com."""
    profile: MigProfile | None = None
    """MIG profile to ask for; the whole device without one."""
    product: GpuProduct | None = None
    """GPU product as its node label `nvidia.com/gpu.product` says it; any without."""


PlacementArgs = CpuArgs | MigArgs | WholeGpuArgs | SharedGpuArgs | DraArgs


def models_share(profile: MigProfile) -> int:
    """Return the bytes of a slice that models may take where no capacity is said."""
    part, whole = eviction.MODELS_SHARE
    return number_in(profile, ".", "gb", 10**9 * part // whole)


class GpuPlacement(pulumi.ComponentResource):
    """Where a pod may run and which device it gets; declares the ResourceClaimTemplate of a DRA device."""

    def __init__(
        self,
        name: str,
        args: PlacementArgs,
        place: Place,
        pool: str,
        labels: Texts,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare what the device needs; `pool` is the name of the objects of the pool that it is for."""
        super().__init__("tidegate:components:GpuPlacement", name, None, opts)
        self._args = args
        self._template_name = f"{pool}-gpu"
        of_kind(args, DraArgs, lambda claim: self._claim_template(name, claim, place, labels))
        self.register_outputs({})

    def node_selector(self, more: Labels) -> dict[str, Any] | None:
        """Return the labels that the node must carry: those of the device, and more."""
        args = self._args
        return merged(
            more,
            of_kind(args, MigArgs, _mig_selector),
            of_kind(args, WholeGpuArgs, lambda gpu: _product(gpu.product)),
            of_kind(
                args,
                SharedGpuArgs,
                lambda shared: merged(
                    where(
                        shared.renamed,
                        lambda: _product(shared.product),
                        lambda: when(shared.product, lambda product: {PRODUCT: f"{product}-SHARED"}),
                    ),
                    {"nvidia.com/gpu.sharing-strategy": shared.kind},
                ),
            ),
            of_kind(args, DraArgs, lambda claim: _product(claim.product)),
        )

    def tolerations(self, more: Sequence[TolerationArgs]) -> list[k8s.core.v1.TolerationArgs] | None:
        """Return the taints that the pod tolerates: that of GPU nodes, and more."""
        on_gpu = where(equals(self._args.kind, "cpu"), lambda: None, lambda: [GPU_TOLERATION])
        taints: list[k8s.core.v1.TolerationArgs] | None = some(joined(on_gpu, each(more, toleration)))
        return taints

    def resources(self, wanted: ResourcesArgs) -> k8s.core.v1.ResourceRequirementsArgs:
        """Return requests and limits of the container that uses the device."""
        args = self._args
        devices = merged(
            of_kind(
                args,
                MigArgs,
                lambda mig: where(
                    equals(mig.strategy, "single"),
                    lambda: {GPU: "1"},
                    lambda: {f"nvidia.com/mig-{mig.profile}": "1"},
                ),
            ),
            of_kind(args, WholeGpuArgs, lambda gpu: {GPU: f"{gpu.count}"}),
            of_kind(
                args,
                SharedGpuArgs,
                lambda shared: where(shared.renamed, lambda: {f"{GPU}.shared": "1"}, lambda: {GPU: "1"}),
            ),
        )
        claims = of_kind(args, DraArgs, lambda _: [k8s.core.v1.ResourceClaimArgs(name=CLAIM_NAME)])
        return container_resources(wanted, devices, claims)

    @property
    def resource_claims(self) -> list[k8s.core.v1.PodResourceClaimArgs] | None:
        """Claims of the pod."""
        return of_kind(
            self._args,
            DraArgs,
            lambda _: [
                k8s.core.v1.PodResourceClaimArgs(name=CLAIM_NAME, resource_claim_template_name=self._template_name)
            ],
        )

    def _claim_template(
        self, name: str, claim: DraArgs, place: Place, labels: Texts
    ) -> k8s.resource.v1.ResourceClaimTemplate:
        selectors = joined(
            when(
                claim.profile,
                lambda profile: [_expression(f"device.attributes['gpu.nvidia.com'].profile == '{profile}'")],
            ),
            when(
                claim.product,
                # The label has dashes where the device's own name has spaces.
                lambda product: [
                    _expression(
                        f"device.attributes['gpu.nvidia.com'].productName.replace(' ', '-') == '{product}'",
                    )
                ],
            ),
        )
        exactly = k8s.resource.v1.ExactDeviceRequestArgs(
            device_class_name=claim.device_class, selectors=some(selectors)
        )
        return k8s.resource.v1.ResourceClaimTemplate(
            f"{name}-claim",
            metadata=place.metadata(self._template_name, labels),
            spec=k8s.resource.v1.ResourceClaimTemplateSpecArgs(
                spec=k8s.resource.v1.ResourceClaimSpecArgs(
                    devices=k8s.resource.v1.DeviceClaimArgs(
                        requests=[k8s.resource.v1.DeviceRequestArgs(name=CLAIM_NAME, exactly=exactly)]
                    )
                )
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )


def _mig_selector(mig: MigArgs) -> dict[str, Any] | None:
    return merged(
        # With strategy single the resource is nvidia.com/gpu: only the product's label tells the profile.
        where(
            equals(mig.strategy, "single"),
            lambda: {PRODUCT: f"{_needed_product(mig)}-MIG-{mig.profile}"},
            lambda: _product(mig.product),
        ),
        {MIG_STRATEGY: mig.strategy, "nvidia.com/mig.config.state": "success"},
    )


def _needed_product(mig: MigArgs) -> GpuProduct:
    return needed(mig.product, "product is needed: with MIG strategy single only its label tells profiles apart")


def _product(product: GpuProduct | None) -> dict[str, Any] | None:
    return when(product, lambda label: {PRODUCT: label})


def _expression(text: str) -> k8s.resource.v1.DeviceSelectorArgs:
    return k8s.resource.v1.DeviceSelectorArgs(cel=k8s.resource.v1.CELDeviceSelectorArgs(expression=text))
