"""GPU placement: one typed value that determines node selector, resource name, tolerations and claims.

Sources of labels and resource names: NVIDIA's k8s-device-plugin, GPU feature discovery and GPU operator.
"""

from collections.abc import Sequence
from typing import Any, Final

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input

from stacks.definition.base import Labels, Resources
from stacks.definition.placement import (
    CpuPlacement,
    DraPlacement,
    MigPlacement,
    Placement,
    Product,
    SharedGpuPlacement,
    WholeGpuPlacement,
)
from stacks.definition.pods import Toleration

from .naming import Naming, Texts
from .pods import container_resources, toleration, variables
from .values import (
    each,
    equals,
    if_true,
    joined,
    merged,
    needed,
    none_if_empty,
    nothing,
    of_kind,
    of_kinds,
    replaced,
    when,
)

PRODUCT = "nvidia.com/gpu.product"
MIG_STRATEGY = "nvidia.com/mig.strategy"
GPU = "nvidia.com/gpu"

CLAIM_NAME = "gpu"  # Name of the claim inside a pod.

NO_GPU: Final = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""For containers without a GPU: images for CUDA request every GPU, and some runtimes then grant them."""


class GpuPlacement(pulumi.ComponentResource):
    """The nodes and the device of a pod. Declares the ResourceClaimTemplate of a DRA device."""

    def __init__(
        self, name: str, args: Placement, naming: Naming, pool: str, labels: Texts, opts: pulumi.ResourceOptions
    ) -> None:
        """Declare the objects of the device. `pool` is the name of the pool's objects."""
        super().__init__("tidegate:components:GpuPlacement", name, None, opts)
        self._args = args
        self._template_name = f"{pool}-gpu"
        of_kind(args, DraPlacement, lambda claim: self._claim_template(name, claim, naming, labels))
        self.register_outputs({})

    def node_selector(self, more: Labels) -> dict[str, Any] | None:
        """Return the labels that the node must have: those of the device, and more. A claim needs none, because its own
        selectors choose the device. GPU Feature Discovery may not run."""
        args = self._args
        return merged(
            more,
            of_kinds(
                args,
                {
                    MigPlacement: _mig_selector,
                    WholeGpuPlacement: lambda gpu: _product(gpu.product),
                    SharedGpuPlacement: _shared_selector,
                    DraPlacement: nothing,
                    CpuPlacement: nothing,
                },
            ),
        )

    def tolerations(self, more: Sequence[Toleration]) -> list[k8s.core.v1.TolerationArgs] | None:
        """Return the tolerations of the pod: that of GPU nodes, and more."""
        # By convention GPU nodes have this taint, with any value.
        gpu = k8s.core.v1.TolerationArgs(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
        on_gpu = if_true(equals(self._args.kind, "cpu"), lambda: None, lambda: [gpu])
        taints: list[k8s.core.v1.TolerationArgs] | None = none_if_empty(joined(on_gpu, each(more, toleration)))
        return taints

    def resources(self, wanted: Resources, scratch: Input[str]) -> k8s.core.v1.ResourceRequirementsArgs:
        """Return requests and limits of the container that uses the device."""

        def of_mig(mig: MigPlacement) -> dict[str, Any]:
            single = equals(mig.strategy, "single")
            return if_true(single, lambda: {GPU: "1"}, lambda: {f"nvidia.com/mig-{_in_names(mig)}": "1"})

        def of_share(shared: SharedGpuPlacement) -> dict[str, Any]:
            return if_true(shared.renamed, lambda: {f"{GPU}.shared": "1"}, lambda: {GPU: "1"})

        args = self._args
        devices = of_kinds(
            args,
            {
                MigPlacement: of_mig,
                WholeGpuPlacement: lambda gpu: {GPU: f"{gpu.count}"},
                SharedGpuPlacement: of_share,
                DraPlacement: nothing,
                CpuPlacement: nothing,
            },
        )
        claims = of_kind(args, DraPlacement, lambda _: [k8s.core.v1.ResourceClaimArgs(name=CLAIM_NAME)])
        return container_resources(wanted, scratch, devices, claims)

    @property
    def variables(self) -> list[k8s.core.v1.EnvVarArgs] | None:
        return of_kind(self._args, CpuPlacement, lambda _: variables(NO_GPU))

    @property
    def resource_claims(self) -> list[k8s.core.v1.PodResourceClaimArgs] | None:
        return of_kind(
            self._args,
            DraPlacement,
            lambda _: [
                k8s.core.v1.PodResourceClaimArgs(name=CLAIM_NAME, resource_claim_template_name=self._template_name)
            ],
        )

    def _claim_template(
        self, name: str, claim: DraPlacement, naming: Naming, labels: Texts
    ) -> k8s.resource.v1.ResourceClaimTemplate:
        of = "device.attributes['gpu.nvidia.com']"
        selectors = joined(
            when(claim.profile, lambda profile: [_expression(f"{of}.profile == '{profile}'")]),
            # The label has dashes in place of the spaces in the device's name.
            when(claim.product, lambda product: [_expression(f"{of}.productName.replace(' ', '-') == '{product}'")]),
        )
        exactly = k8s.resource.v1.ExactDeviceRequestArgs(
            device_class_name=claim.device_class, selectors=none_if_empty(selectors)
        )
        request = k8s.resource.v1.DeviceRequestArgs(name=CLAIM_NAME, exactly=exactly)
        devices = k8s.resource.v1.DeviceClaimArgs(requests=[request])
        return k8s.resource.v1.ResourceClaimTemplate(
            f"{name}-claim",
            metadata=naming.metadata(self._template_name, labels),
            spec=k8s.resource.v1.ResourceClaimTemplateSpecArgs(
                spec=k8s.resource.v1.ResourceClaimSpecArgs(devices=devices)
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )


def _mig_selector(mig: MigPlacement) -> dict[str, Any] | None:
    why = "product is required: with MIG strategy single only its label distinguishes profiles"
    # With strategy mixed the resource names the profile. With single it is nvidia.com/gpu, and only labels name it.
    return if_true(
        equals(mig.strategy, "single"),
        lambda: {PRODUCT: f"{needed(mig.product, why)}-MIG-{_in_names(mig)}", MIG_STRATEGY: "single"},
        lambda: _product(mig.product),
    )


def _in_names(mig: MigPlacement) -> str:
    """Return a profile in the form of resources and labels: 1g.10gb.me for 1g.10gb+me."""
    return replaced(mig.profile, "+", ".")


def _shared_selector(shared: SharedGpuPlacement) -> dict[str, Any] | None:
    return merged(
        if_true(
            shared.renamed,
            lambda: _product(shared.product),
            lambda: when(shared.product, lambda product: {PRODUCT: f"{product}-SHARED"}),
        ),
        {"nvidia.com/gpu.sharing-strategy": shared.kind},
    )


def _product(product: Product | None) -> dict[str, Any] | None:
    return when(product, lambda label: {PRODUCT: label})


def _expression(text: str) -> k8s.resource.v1.DeviceSelectorArgs:
    return k8s.resource.v1.DeviceSelectorArgs(cel=k8s.resource.v1.CELDeviceSelectorArgs(expression=text))
