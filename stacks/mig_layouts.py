"""One way to cut a data plane's GPUs so that they give the slices that are asked for.

    layout(gpus, asked) → Layout | None

`gpus` is an inventory (`gpus:` of a data plane). `asked` counts devices by kind and product, None for those of any
product: (Device("mig", "2g.20gb", "mixed"), None): 3. All GPUs of a node are cut alike, as NVIDIA's MIG manager does
by default; nodes of one group may come to be cut in several ways. Whole GPUs may be cut, and cut ones be made whole.
Shared GPUs, products that are not in the table, and nodes whose GPUs are cut in several ways stay as they are. Devices
are counted, whichever nodes they are on: a replica of several whole GPUs needs them on one node.

How many GPUs hold given slices, with no inventory at hand: `fewest_gpus` and `cuts` of `stacks.definition.mig_cuts`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from policies.guardrails.devices import Device

from .definition.gpu_products import gpu_product
from .definition.mig_cuts import Cut, cuts, fewest, filled, stand_on, words
from .definition.placement import GpuNodes, MigLayout
from .devices import inventory

Asked = Mapping[tuple[Device, str | None], int]
_WHOLE = Device("gpu")
_Devices = Counter[tuple[Device, str | None]]


@dataclass(frozen=True)
class Change:
    """Nodes of one group that are cut anew; an empty cut is a whole GPU."""

    group: int  # Place in the inventory.
    product: str
    nodes: int
    before: Cut
    after: Cut

    def __str__(self) -> str:
        """Words for people."""
        before, after = (words(cut) or "whole" for cut in (self.before, self.after))
        return f"{self.nodes} × {self.product}: {before} → {after}"


@dataclass(frozen=True)
class Layout:
    """An inventory that gives what is asked for, and what it takes to come there."""

    gpus: tuple[GpuNodes, ...]
    """The inventory afterwards; a group of which some nodes are cut anew stands in several parts."""
    changes: tuple[Change, ...]

    @property
    def drained(self) -> int:
        """How many nodes are cut anew."""
        return sum(change.nodes for change in self.changes)


def layout(gpus: Sequence[GpuNodes], asked: Asked) -> Layout | None:
    """Return a layout that gives what is asked for, or None.

    It leaves all nodes as they are, else cuts as few as possible of the first group that suffices, else cuts all.
    """
    limits = [group.nodes if _kind(group, asked) else 0 for group in gpus]

    def of_group(place: int, nodes: int) -> Layout | None:
        return _recut(gpus, asked, [nodes if at == place else 0 for at in range(len(gpus))])

    def suffices(place: int, nodes: int) -> bool:
        return of_group(place, nodes) is not None

    if as_it_is := of_group(0, 0):
        return as_it_is
    for place, most in enumerate(limits):
        if suffices(place, most):
            return of_group(place, fewest(most, partial(suffices, place)))
    return _recut(gpus, asked, limits)


def _today(group: GpuNodes) -> Cut:
    return next((dict(each.slices) for _, each in group.layouts), {})


# ---- kinds of nodes, and what a number of them can give ----


@dataclass(frozen=True)
class _Kind:
    """Nodes that can be cut alike."""

    product: str
    per_node: int
    strategy: Literal["mixed", "single", "dra"]

    def gives(self, device: Device, product: str | None) -> bool:
        """Say whether such a node can be cut so that it gives a device."""
        known = gpu_product(self.product)
        if known is None or product not in (None, self.product):
            return False
        how = device.strategy if device.kind == "mig" else device.kind
        return device == _WHOLE or (how == self.strategy and device.profile in known.plain)

    def hold(self, nodes: int, taken: Mapping[Device, int]) -> bool:
        """Say whether so many nodes can give these devices together."""
        known, each = gpu_product(self.product), self._of_each(taken)
        nodes -= each.pop(_WHOLE, 0)
        slices = {str(device.profile): count for device, count in each.items()}
        assert known is not None
        if self.strategy != "single":
            return nodes >= 0 and stand_on(known, slices, nodes)
        return sum(-(-count // filled(known, {}, [profile])[profile]) for profile, count in slices.items()) <= nodes

    def most(self, nodes: int, taken: Counter[Device], device: Device, count: int) -> int:
        """Return how many of a device, up to a count, so many nodes can give beside what is taken of them."""
        return count - fewest(count, lambda less: self.hold(nodes, taken + Counter({device: count - less})))

    def cut(self, nodes: int, taken: Mapping[Device, int], asked: Sequence[Device]) -> list[Cut]:
        """Return a cut for each of so many nodes that together give these devices, and more of those asked for."""
        known, each = gpu_product(self.product), self._of_each(taken)
        assert known is not None
        whole = each.pop(_WHOLE, 0)
        slices = {str(device.profile): count for device, count in each.items() if count}
        profiles = [str(device.profile) for device in asked if device.profile in known.plain]
        if self.strategy == "single":
            alone = {profile: filled(known, {}, [profile]) for profile in profiles}
            found = [alone[one] for one, count in slices.items() for _ in range(-(-count // alone[one][one]))]
            spare = alone[profiles[0]] if profiles else {}
        else:
            found = [filled(known, one, profiles) for one in cuts(known, slices)]
            spare = filled(known, {}, profiles)
        found += [{}] * whole
        return found + [spare] * (nodes - len(found))

    def _of_each(self, taken: Mapping[Device, int]) -> dict[Device, int]:
        """Return how many of each device every GPU of a node gives where all are cut alike, in GPUs a node."""
        return {device: -(-count // self.per_node) for device, count in taken.items()}


def _kind(group: GpuNodes, asked: Asked) -> _Kind | None:
    """Return what a group's nodes can become; GPUs that are whole get the strategy that is asked for."""
    known = gpu_product(group.product)
    is_cut_in_several_ways = len(group.layouts) + bool(group.whole) > 1
    if group.sharing or is_cut_in_several_ways or known is None or not known.profiles:
        return None
    hows = [device.strategy or device.kind for device, _ in asked if device.kind in ("mig", "dra")]
    how: Literal["mixed", "single", "dra"] = "mixed" if "mixed" in hows else "single" if "single" in hows else "dra"
    return _Kind(group.product, group.per_node, group.strategy or how)


def _recut(gpus: Sequence[GpuNodes], asked: Asked, some: Sequence[int]) -> Layout | None:
    """Return the layout where so many nodes of each group are cut for what the others lack; None if that is too few.

    Each group in turn takes as much of it as its nodes hold.
    """
    kept = [_some(group, group.nodes - nodes) for group, nodes in zip(gpus, some, strict=True)]
    lacking = _lacking(kept, asked)
    after: list[GpuNodes] = []
    changes: list[Change] = []
    for place, (group, nodes) in enumerate(zip(gpus, some, strict=True)):
        after += [_some(group, group.nodes - nodes)] if nodes < group.nodes else []
        kind = _kind(group, asked) if nodes else None
        if kind is None:
            continue
        taken = Counter[Device]()
        for device, product in [key for key in lacking if kind.gives(*key)]:
            most = kind.most(nodes, taken, device, lacking[device, product])
            taken[device] += most
            lacking[device, product] -= most
        devices = [device for device, product in asked if kind.gives(device, product)]
        new = kind.cut(nodes, taken, devices)
        for cut in [cut for at, cut in enumerate(new) if cut not in new[:at]]:
            slices = MigLayout(strategy=kind.strategy, slices=cut) if cut else None
            after.append(group.model_copy(update={"nodes": new.count(cut), "mig": slices}))
            changes.append(Change(place, group.product, new.count(cut), _today(group), cut))
    return None if +lacking else Layout(tuple(after), tuple(changes))


def _lacking(gpus: Sequence[GpuNodes], asked: Asked) -> _Devices:
    """Return what is asked for and not there."""
    there, lacking = inventory(gpus), Counter(asked)
    for device, product in sorted(asked, key=lambda each: each[1] is None):  # of any: what is left
        for key in [key for key in there if key[0] == device and product in (None, key[1])]:
            met = min(lacking[device, product], there[key])
            there[key] -= met
            lacking[device, product] -= met
    return +lacking


def _some(group: GpuNodes, nodes: int) -> GpuNodes:
    return group.model_copy(update={"nodes": nodes})
