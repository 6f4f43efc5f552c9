"""GPU placement: what a pod says so that it lands on the right slice, and nowhere else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input

from .pods import metadata
from .values import Labels, each, when


@dataclass(frozen=True, kw_only=True)
class TolerationArgs:
    """A taint that the pod may be scheduled on."""

    key: Input[str]
    operator: Input[str]
    value: Input[str] | None = None
    effect: Input[str] | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceClaimArgs:
    """A device by Dynamic Resource Allocation."""

    template_name: Input[str]
    device_class: Input[str]
    selectors: Sequence[Input[str]] = ()
    """CEL expressions that a device must fulfil."""


@dataclass(frozen=True, kw_only=True)
class GpuPlacementArgs:
    """Selector, tolerations and resources that belong together, as the resolved environment has them."""

    node_selector: Labels | None = None
    tolerations: Sequence[TolerationArgs] = ()
    resources: Input[Any] = None
    """Requests and limits of the server's container, the GPU's resource key among them."""
    device_claim: DeviceClaimArgs | None = None


def tolerations(taints: Sequence[TolerationArgs]) -> list[k8s.core.v1.TolerationArgs] | None:
    """Return a pod's tolerations."""
    return each(
        taints,
        lambda taint: k8s.core.v1.TolerationArgs(
            key=taint.key, operator=taint.operator, value=taint.value, effect=taint.effect
        ),
    )


CLAIM_NAME = "gpu"
"""Name of the claim inside a pod."""


class GpuPlacement(pulumi.ComponentResource):
    """Where a pod may run and which device it gets; declares the ResourceClaimTemplate of a DRA device."""

    def __init__(
        self,
        name: str,
        args: GpuPlacementArgs,
        namespace: Input[str],
        labels: Labels,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare what the device needs."""
        super().__init__("tidegate:components:GpuPlacement", name, None, opts)
        self._args = args
        when(args.device_claim, lambda claim: self._claim_template(name, claim, namespace, labels))
        self.register_outputs({})

    @property
    def node_selector(self) -> Labels | None:
        """Labels that the node must carry."""
        return self._args.node_selector

    @property
    def tolerations(self) -> list[k8s.core.v1.TolerationArgs] | None:
        """Taints that the pod tolerates."""
        return tolerations(self._args.tolerations)

    @property
    def resources(self) -> Input[Any]:
        """Requests and limits of the container that uses the device."""
        return self._args.resources

    @property
    def resource_claims(self) -> list[k8s.core.v1.PodResourceClaimArgs] | None:
        """Claims of the pod."""
        return when(
            self._args.device_claim,
            lambda claim: [
                k8s.core.v1.PodResourceClaimArgs(name=CLAIM_NAME, resource_claim_template_name=claim.template_name)
            ],
        )

    def _claim_template(
        self, name: str, claim: DeviceClaimArgs, namespace: Input[str], labels: Labels
    ) -> k8s.resource.v1.ResourceClaimTemplate:
        return k8s.resource.v1.ResourceClaimTemplate(
            f"{name}-claim",
            metadata=metadata(claim.template_name, namespace, labels),
            spec=k8s.resource.v1.ResourceClaimTemplateSpecArgs(
                spec=k8s.resource.v1.ResourceClaimSpecArgs(
                    devices=k8s.resource.v1.DeviceClaimArgs(
                        requests=[
                            k8s.resource.v1.DeviceRequestArgs(
                                name=CLAIM_NAME,
                                exactly=k8s.resource.v1.ExactDeviceRequestArgs(
                                    device_class_name=claim.device_class,
                                    selectors=each(
                                        claim.selectors,
                                        lambda expression: k8s.resource.v1.DeviceSelectorArgs(
                                            cel=k8s.resource.v1.CELDeviceSelectorArgs(expression=expression)
                                        ),
                                    ),
                                ),
                            )
                        ]
                    )
                )
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )
