"""What containers of every kind are told alike: resources, tolerations, and when an autoscaler adds one."""

from collections.abc import Iterable
from typing import TypeVar

from components import CpuScalingArgs, ResourcesArgs, TolerationArgs

from ..definition.base import CpuScaling, Resources, Toleration

Kind = TypeVar("Kind", bound=ResourcesArgs)


def container_resources(kind: type[Kind], resources: Resources) -> Kind:
    """Return what a container of a kind asks of its node."""
    return kind(cpu=resources.cpu, memory=resources.memory, cpu_limit=resources.cpu_limit)


def tolerations(wanted: Iterable[Toleration]) -> list[TolerationArgs]:
    """Return the taints that pods tolerate."""
    return [TolerationArgs(key=taint.key, value=taint.value, effect=taint.effect) for taint in wanted]


def cpu_scaling(scaling: CpuScaling) -> CpuScalingArgs:
    """Return the bounds of an autoscaler by CPU use."""
    return CpuScalingArgs(min=scaling.min, max=scaling.max, cpu_percent=scaling.cpu_percent)
