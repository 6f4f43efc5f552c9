"""One way to cut the GPUs of a data plane again so that they give the slices that are asked for.

All GPUs of a node are cut alike, as NVIDIA's MIG manager does by default. Devices are counted, whichever nodes they
are on: a replica of several whole GPUs needs them on one node.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from .definition.gpu_products import gpu_product
from .definition.mig_cuts import Cut, cuts
from .definition.placement import GpuNodes
from .devices import Device, inventory

Asked = Mapping[tuple[Device, str | None], int]
"""Devices by kind and product, None for those of any product: (Device("mig", "2g.20gb", "mixed"), None): 3."""
_WHOLE = Device("gpu")


def layout(gpus: Sequence[GpuNodes], asked: Asked) -> tuple[GpuNodes, list[Cut]] | None:
    """Return a group of nodes, and how so many of them are cut to give all that the others do not.

    An empty cut is a whole GPU. None if no group suffices.
    """
    for group in gpus:
        product = gpu_product(group.product)
        needed = _needed(gpus, asked, group)
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


def _needed(gpus: Sequence[GpuNodes], asked: Asked, group: GpuNodes) -> Counter[Device]:
    """Return what a group has to give; nothing where another product lacks what is asked of it by name."""
    others = inventory(each for each in gpus if each is not group)
    elsewhere = {key: count for key, count in asked.items() if key[1] not in (None, group.product)}
    needed = Counter[Device]()
    if any(others[device, str(of)] < count for (device, of), count in elsewhere.items()):
        return needed
    for (device, of), count in asked.items():
        spare = sum(there for (kind, _), there in others.items() if kind == device)
        spare -= sum(taken for (kind, _), taken in elsewhere.items() if kind == device)
        if of in (None, group.product):
            needed[device] += count if of else max(0, count - spare)
    return +needed
