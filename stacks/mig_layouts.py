"""Which cuts of a data plane's GPUs give the slices that are asked for, with the fewest nodes cut anew, and so drained.

    layout(gpus, asked) → Layout | None
    advice(gpus, asked, together) → sentences for people, about both
    more_nodes(gpus, asked) → {place in `gpus`: how many more nodes like those there would do, by themselves}

`gpus` is an inventory (`gpus:` of a data plane). `asked` counts devices by kind and product, None for those of any
product: (Device("mig", "2g.20gb", "mixed"), None): 3. All GPUs of a node are cut alike, as NVIDIA's MIG manager does
by default; nodes of one group may come to be cut in several ways. Whole GPUs may be cut, and cut ones be made whole.
Shared GPUs, products that are not in the table, and nodes whose GPUs are cut in several ways stay as they are.
`together` is how many whole GPUs a pod takes, all of one node: what of a node's whole GPUs is less counts for nothing.

How many GPUs hold given slices, with no inventory at hand: `fewest_gpus` and `cuts` of `stacks.definition.mig_cuts`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

from .definition.gpu_products import gpu_product
from .definition.mig_cuts import Cut, cuts, fewest, filled, stand_on, unused, words
from .definition.placement import GpuNodes, MigLayout
from .devices import Device, inventory

Asked = Mapping[tuple[Device, str | None], int]
_MOST_TRIED = 5_000  # Ways to choose nodes, or to share devices among kinds of nodes: seconds at the most.
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
class Unused:
    """What of a GPU belongs to no slice: compute slices and memory slices."""

    product: str
    cut: Cut
    gpus: int
    compute: int
    memory: int


@dataclass(frozen=True)
class Layout:
    """An inventory that gives what is asked for, and what it takes to come there."""

    gpus: tuple[GpuNodes, ...]
    """The inventory afterwards; a group of which some nodes are cut anew stands in several parts."""
    changes: tuple[Change, ...]
    free: Counter[tuple[Device, str]]
    """Devices of each product that nobody asks for."""
    is_least: bool = True
    """False where so many ways were tried that fewer nodes may do."""

    @property
    def drained(self) -> int:
        """How many nodes are cut anew."""
        return sum(change.nodes for change in self.changes)

    @cached_property
    def unused(self) -> tuple[Unused, ...]:
        """What no slice can be cut from any more, by the products and cuts that have such."""
        found: Counter[tuple[str, tuple[tuple[str, int], ...]]] = Counter()
        for group in self.gpus:
            for gpus, each in group.layouts:
                found[group.product, tuple(each.slices.items())] += group.nodes * gpus
        cut = ((product, dict(cut), gpus, gpu_product(product)) for (product, cut), gpus in found.items() if cut)
        every = (Unused(product, cut, gpus, *unused(known, cut)) for product, cut, gpus, known in cut if known)
        return tuple(one for one in every if one.compute or one.memory)


def layout(gpus: Sequence[GpuNodes], asked: Asked, together: int = 1) -> Layout | None:
    """Return the layout with the fewest nodes cut anew; None where no cut of these GPUs gives what is asked for."""
    search = _Search(gpus, asked, together)
    most = sum(search.limits)
    if search.first(most) is None:
        return None
    total = fewest(most, lambda nodes: search.first(nodes) is not None)
    return min(search.layouts(total), key=_waste)


def more_nodes(gpus: Sequence[GpuNodes], asked: Asked, together: int = 1) -> dict[int, int]:
    """Return for each group that helps how many more nodes like it would do, each cut as serves best.

    They have `together` GPUs each where those of the group have fewer.
    """

    def would_do(place: int, more: int) -> bool:
        per_node = max(together, gpus[place].per_node)
        search = _Search([*gpus, gpus[place].model_copy(update={"nodes": more, "per_node": per_node})], asked, together)
        return search.first(sum(search.limits)) is not None

    found = {}
    for place in range(len(gpus)):
        most = sum(asked.values())
        if would_do(place, most):
            found[place] = fewest(most, partial(would_do, place))
    return found


def advice(gpus: Sequence[GpuNodes], asked: Asked, together: int) -> Iterator[str]:
    """Yield sentences: how to cut these GPUs anew so that they give what is asked for, or how many more would."""
    fitting = layout(gpus, asked, together)
    if one := fitting or layout(gpus, asked):  # not every pod takes so many together
        if one.changes:
            most = "" if one.is_least else " at the most"
            yield f"Or cut {one.drained} of {sum(group.nodes for group in gpus)} nodes anew{most}, and say so there:"
            yield from map(str, one.changes)
            if not fitting:
                yield f"That is by number: see that each replica of several GPUs, {together} at the most, has one node."
        yield from left_over(one)
    if not fitting and (more := more_nodes(gpus, asked, together)):
        each_way = (
            f"{count} of {gpus[place].product} with {max(together, gpus[place].per_node)} each"
            for place, count in more.items()
        )
        begins = "More nodes would do, too" if one else "No cut of these GPUs gives it. More nodes would"
        yield f"{begins}, cut as serves best: {' or '.join(each_way)}."


def left_over(one: Layout) -> Iterator[str]:
    """Yield sentences about what of a layout nobody asks for, and what is in no slice."""
    if one.free:
        yield f"Free then: {', '.join(f'{count} × {device}' for (device, _), count in one.free.items())}."
    for each in one.unused:
        known = gpu_product(each.product)
        compute, memory = known.slices if known else (0, 0)
        lost = [(each.compute, f"of {compute} compute"), (each.memory, f"of {memory} memory")]
        told = " and ".join(f"{count} {of}" for count, of in lost if count)
        yield f"In no slice then: {told} slices of each {each.product} that is cut into {words(each.cut)}."


def _waste(one: Layout) -> tuple[int, int]:
    return sum(each.gpus * (each.compute + each.memory) for each in one.unused), len(one.changes)


def _today(group: GpuNodes) -> Cut:
    return next((dict(each.slices) for _, each in group.layouts), {})


# ---- kinds of nodes, and what a number of them can give ----


@dataclass(frozen=True)
class _Kind:
    """Nodes that can be cut alike."""

    product: str
    per_node: int
    strategy: Literal["mixed", "single", "dra"]
    together: int

    def gives(self, device: Device, product: str | None) -> bool:
        """Say whether such a node can be cut so that it gives a device."""
        known = gpu_product(self.product)
        if known is None or product not in (None, self.product):
            return False
        how = device.strategy if device.kind == "mig" else device.kind
        if device == _WHOLE:
            return self.per_node >= self.together
        return how == self.strategy and device.profile in known.plain

    def hold(self, nodes: int, taken: Mapping[Device, int]) -> bool:
        """Say whether so many nodes can give these devices together."""
        known, each = gpu_product(self.product), self._of_each(taken)
        nodes -= each.pop(_WHOLE, 0)
        slices = {str(device.profile): count for device, count in each.items()}
        assert known is not None
        if self.strategy != "single":
            return nodes >= 0 and stand_on(known, slices, nodes)
        return sum(-(-count // filled(known, {}, [profile])[profile]) for profile, count in slices.items()) <= nodes

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
        whole = _whole(self.per_node, self.together)
        return {device: -(-count // (whole if device == _WHOLE else self.per_node)) for device, count in taken.items()}


_Row = tuple[Device, list[_Kind], int]
_Loads = dict[_Kind, Counter[Device]]


class _Search:
    """Which nodes to cut anew, for a given number of them."""

    def __init__(self, gpus: Sequence[GpuNodes], asked: Asked, together: int) -> None:
        self._gpus, self._asked, self._together = gpus, Counter(asked), together
        self._kinds = [self._kind(group) for group in gpus]
        self.limits = [group.nodes if kind else 0 for group, kind in zip(gpus, self._kinds, strict=True)]
        self._tried, self._gave_up = 0, False

    def _kind(self, group: GpuNodes) -> _Kind | None:
        """Return what a group's nodes can become; GPUs that are whole get the strategy that is asked for."""
        known = gpu_product(group.product)
        is_cut_in_several_ways = len(group.layouts) + bool(group.whole) > 1
        if group.sharing or is_cut_in_several_ways or known is None or not known.profiles:
            return None
        hows = [device.strategy or device.kind for device, _ in self._asked if device.kind in ("mig", "dra")]
        asked: Literal["mixed", "single", "dra"] = (
            "mixed" if "mixed" in hows else "single" if "single" in hows else "dra"
        )
        return _Kind(group.product, group.per_node, group.strategy or asked, self._together)

    def first(self, total: int) -> tuple[int, ...] | None:
        """Return how many nodes of each group to cut anew, so many in all; None where that gives too little."""
        return next((some for some, _ in self._ways(total)), None)

    def layouts(self, total: int) -> Iterator[Layout]:
        """Yield every layout that cuts so many nodes anew."""
        for some, loads in self._ways(total):
            yield self._layout(some, loads)

    def _ways(self, total: int) -> Iterator[tuple[tuple[int, ...], _Loads]]:
        """Yield numbers of nodes of each group, with what these have to give when they are cut anew."""
        self._tried = 0
        for some in _parts(total, self.limits):
            kept = [_some(group, group.nodes - count) for group, count in zip(self._gpus, some, strict=True)]
            lacking, _ = self._balance(kept)
            nodes: Counter[_Kind] = Counter()
            for one, count in zip(self._kinds, some, strict=True):
                nodes.update({one: count} if one and count else {})
            rows = [
                (device, [kind for kind in nodes if kind.gives(device, made)], count)
                for (device, made), count in lacking.items()
            ]
            loads = self._shared(sorted(rows, key=lambda row: len(row[1])), nodes, {kind: Counter() for kind in nodes})
            if loads is not None:
                yield some, loads
            if self._tried > _MOST_TRIED:
                self._gave_up = True
                return

    def _shared(self, rows: Sequence[_Row], nodes: Mapping[_Kind, int], loads: _Loads) -> _Loads | None:
        """Return what each kind of nodes gives of what is lacking; None where they cannot."""
        self._tried += 1
        if not rows or self._tried > _MOST_TRIED:
            return None if rows else loads
        (device, kinds, count), *others = rows
        if not kinds:
            return None
        first, *rest = kinds

        def with_(amount: int) -> Counter[Device]:
            return loads[first] + Counter({device: amount})

        most = fewest(count, lambda less: first.hold(nodes[first], with_(count - less)))
        for amount in range(count - most, -1, -1) if rest else [count]:
            more = {**loads, first: with_(amount)}
            if most == 0 or rest:
                left = [(device, rest, count - amount)] if amount < count else []
                if (found := self._shared([*left, *others], nodes, more)) is not None:
                    return found
        return None

    def _layout(self, some: Sequence[int], loads: _Loads) -> Layout:
        """Return the layout where so many nodes of each group are cut anew, to give these loads."""
        new: dict[_Kind, list[Cut]] = {}
        for one, load in loads.items():
            devices = [device for device, made in self._asked if one.gives(device, made)]
            nodes = sum(count for kind, count in zip(self._kinds, some, strict=True) if kind == one)
            new[one] = one.cut(nodes, load, devices)
        after: list[GpuNodes] = []
        changes: list[Change] = []
        for place, (group, kind, count) in enumerate(zip(self._gpus, self._kinds, some, strict=True)):
            after += [_some(group, group.nodes - count)] if count < group.nodes else []
            if kind and count:
                mine, new[kind] = new[kind][:count], new[kind][count:]
                for cut in [cut for at, cut in enumerate(mine) if cut not in mine[:at]]:
                    slices = MigLayout(strategy=kind.strategy, slices=cut) if cut else None
                    after.append(group.model_copy(update={"nodes": mine.count(cut), "mig": slices}))
                    changes.append(Change(place, group.product, mine.count(cut), _today(group), cut))
        return Layout(tuple(after), tuple(changes), self._balance(after)[1], not self._gave_up)

    def _balance(self, gpus: Sequence[GpuNodes]) -> tuple[_Devices, Counter[tuple[Device, str]]]:
        """Return what is asked for and not there, and what is there and not asked for."""
        usable = (
            group
            if group.mig or group.sharing
            else group.model_copy(update={"per_node": _whole(group.per_node, self._together)})
            for group in gpus
        )
        there, lacking = inventory(usable), Counter(self._asked)
        for device, product in sorted(self._asked, key=lambda each: each[1] is None):  # of any: what is left
            for key in [key for key in there if key[0] == device and product in (None, key[1])]:
                met = min(lacking[device, product], there[key])
                there[key] -= met
                lacking[device, product] -= met
        return +lacking, +there


def _some(group: GpuNodes, nodes: int) -> GpuNodes:
    return group.model_copy(update={"nodes": nodes})


def _whole(per_node: int, together: int) -> int:
    """Return how many whole GPUs of a node pods can have that take so many together."""
    return per_node - per_node % together


def _parts(total: int, limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to write a number as a sum with a part for each limit, the first ones largest first."""
    if not limits:
        yield from [()] if total == 0 else []
        return
    for first in range(min(total, limits[0]), max(0, total - sum(limits[1:])) - 1, -1):
        yield from ((first, *rest) for rest in _parts(total - first, limits[1:]))
