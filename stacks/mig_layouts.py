"""A proposal to cut the GPUs of a data plane again, so that they have the slices that pools request.

All GPUs of a node have the same cut, which is the default of NVIDIA's MIG manager. The proposal only counts devices: it
does not ensure that the GPUs of a replica with several are on one node.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from .definition.gpu_products import gpu_product
from .definition.mig_cuts import Cut, cuts
from .definition.placement import GpuNodes
from .devices import Device, inventory

Requested = Mapping[tuple[Device, str | None], int]
"""Devices by kind and product, None for any product: (Device("mig", "2g.20gb", "mixed"), None): 3."""
_WHOLE = Device("gpu")


def layout(gpus: Sequence[GpuNodes], requested: Requested) -> tuple[GpuNodes, list[Cut]] | None:
    """Return a group of nodes, and the cuts of some of its nodes, to provide the devices that other groups lack. An
    empty cut is a whole GPU. The result is None if no group suffices."""
    for group in gpus:
        product = gpu_product(group.product)
        needed = _needed(gpus, requested, group)
        if group.sharing or product is None or not needed:
            continue
        strategies = {device.strategy or device.kind for device in needed if device != _WHOLE}
        each = {device.profile: -(-count // group.per_node) for device, count in needed.items()}
        whole = each.pop(None, 0)
        slices = {profile: count for profile, count in each.items() if profile in product.plain}
        is_cuttable = len(strategies) <= 1 and (not group.strategy or strategies <= {group.strategy})
        if (
            not is_cuttable
            or len(slices) < len(each)
            or any(not device.profile and device != _WHOLE for device in needed)
        ):
            continue
        kinds = [{profile: count} for profile, count in slices.items()] if strategies == {"single"} else [slices]
        found = [cut for kind in kinds for cut in cuts(product, kind)] + [Cut()] * whole
        if len(found) <= group.nodes:
            return group, found
    return None


def _needed(gpus: Sequence[GpuNodes], requested: Requested, group: GpuNodes) -> Counter[Device]:
    """Return the devices that a group must provide, or none if another product lacks devices requested by its name."""
    others = inventory(each for each in gpus if each is not group)
    elsewhere = {key: count for key, count in requested.items() if key[1] not in (None, group.product)}
    needed = Counter[Device]()
    if any(others[device, str(of)] < count for (device, of), count in elsewhere.items()):
        return needed
    for (device, of), count in requested.items():
        spare = sum(there for (kind, _), there in others.items() if kind == device)
        spare -= sum(taken for (kind, _), taken in elsewhere.items() if kind == device)
        if of in (None, group.product):
            needed[device] += count if of else max(0, count - spare)
    return +needed
