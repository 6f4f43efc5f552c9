"""One way to cut a data plane's GPUs again so that they give the slices that are asked for.

`gpus` is an inventory (`gpus:` of a data plane). `asked` counts devices by kind and product, None for those of any
product: (Device("mig", "2g.20gb", "mixed"), None): 3. All GPUs of a node are cut alike, as NVIDIA's MIG manager does
by default; nodes of one group may come to be cut in several ways. Shared GPUs, products that are not in the table, and
nodes whose GPUs are cut in several ways stay as they are. Devices are counted, whichever nodes they are on: a replica
of several whole GPUs needs them on one node.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from policies.guardrails.devices import Device

from .definition.gpu_products import gpu_product
from .definition.mig_cuts import Cut, cuts, fewest, filled, stand_on, words
from .definition.placement import GpuNodes
from .devices import inventory

Asked = Mapping[tuple[Device, str | None], int]
_WHOLE = Device("gpu")


@dataclass(frozen=True)
class Change:
    """Nodes of one group that are cut again; an empty cut is a whole GPU."""

    group: int  # Place in the inventory.
    product: str
    nodes: int
    before: Cut
    after: Cut

    def __str__(self) -> str:
        """Words for people."""
        before, after = (words(cut) or "whole" for cut in (self.before, self.after))
        return f"{self.nodes} × {self.product}: {before} → {after}"


def changes(gpus: Sequence[GpuNodes], asked: Asked) -> list[Change] | None:
    """Return how as few nodes as possible of the first group that suffices are cut again; None if no group does."""
    if not _lacking(gpus, asked):
        return []
    for place, group in enumerate(gpus):
        if _cuts(gpus, asked, place, group.nodes) is None:
            continue
        nodes = fewest(group.nodes, partial(_suffices, gpus, asked, place))
        found = _cuts(gpus, asked, place, nodes) or []
        before = next((dict(each.slices) for _, each in group.layouts), {})
        different = [cut for at, cut in enumerate(found) if cut not in found[:at]]
        return [Change(place, group.product, found.count(cut), before, cut) for cut in different]
    return None


def _suffices(gpus: Sequence[GpuNodes], asked: Asked, place: int, nodes: int) -> bool:
    return _cuts(gpus, asked, place, nodes) is not None


def _cuts(gpus: Sequence[GpuNodes], asked: Asked, place: int, nodes: int) -> list[Cut] | None:
    """Return a cut for each of so many nodes of a group that give what all others lack; None if they cannot."""
    group = gpus[place]
    product = gpu_product(group.product)
    if group.sharing or len(group.layouts) + bool(group.whole) > 1 or product is None or not product.profiles:
        return None
    hows = [device.strategy or device.kind for device, _ in asked if device.kind in ("mig", "dra")]
    how = group.strategy or next((each for each in ("mixed", "single") if each in hows), "dra")

    def is_given(device: Device, of: str | None) -> bool:
        """Say whether such a node can be cut so that it gives a device."""
        by = device.strategy if device.kind == "mig" else device.kind
        return of in (None, group.product) and (device == _WHOLE or (by == how and device.profile in product.plain))

    kept = group.model_copy(update={"nodes": group.nodes - nodes})
    lacking = _lacking([*gpus[:place], kept, *gpus[place + 1 :]], asked)
    if not all(is_given(*key) for key in lacking):
        return None
    total = Counter[Device]()
    for (device, _), count in lacking.items():
        total[device] += count
    # How many GPUs of a node, of all that are cut alike, have to give each device.
    each = {device: -(-count // group.per_node) for device, count in total.items()}
    whole = each.pop(_WHOLE, 0)
    slices = {str(device.profile): count for device, count in each.items()}
    profiles = [str(device.profile) for device, of in asked if device != _WHOLE and is_given(device, of)]
    if how == "single":
        alone = {profile: filled(product, {}, [profile]) for profile in profiles}
        found = [alone[one] for one, count in slices.items() for _ in range(-(-count // alone[one][one]))]
        spare = alone[profiles[0]] if profiles else {}
    elif nodes < whole or not stand_on(product, slices, nodes - whole):
        return None
    else:
        found = [filled(product, one, profiles) for one in cuts(product, slices)]
        spare = filled(product, {}, profiles)
    found += [{}] * whole
    return found + [spare] * (nodes - len(found)) if len(found) <= nodes else None


def _lacking(gpus: Sequence[GpuNodes], asked: Asked) -> Counter[tuple[Device, str | None]]:
    """Return what is asked for and not there."""
    there, lacking = inventory(gpus), Counter(asked)
    for device, product in sorted(asked, key=lambda each: each[1] is None):  # of any: what is left
        for key in [key for key in there if key[0] == device and product in (None, key[1])]:
            met = min(lacking[device, product], there[key])
            there[key] -= met
            lacking[device, product] -= met
    return +lacking
