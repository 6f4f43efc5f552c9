"""What a pool's replicas run on."""

from typing import assert_never

from components import CpuArgs, DraArgs, MigArgs, PlacementArgs, SharedGpuArgs, WholeGpuArgs

from ..definition.placement import (
    CpuPlacement,
    DraPlacement,
    GpuPlacement,
    MigPlacement,
    Placement,
    SharedGpuPlacement,
)


def placement(wanted: Placement) -> PlacementArgs:
    """Return a placement as the components know it."""
    match wanted:
        case CpuPlacement():
            return CpuArgs()
        case MigPlacement():
            return MigArgs(profile=wanted.profile, product=wanted.product, strategy=wanted.strategy)
        case GpuPlacement():
            return WholeGpuArgs(count=wanted.count, product=wanted.product)
        case SharedGpuPlacement():
            return SharedGpuArgs(kind=wanted.kind, product=wanted.product, renamed=wanted.renamed)
        case DraPlacement():
            return DraArgs(device_class=wanted.device_class, profile=wanted.profile, product=wanted.product)
        case _:
            assert_never(wanted)
