"""How the GPUs of a data plane are to be cut for an answer, and how the cuts of today get there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stacks import devices
from stacks.definition.mig_cuts import cuts, words
from stacks.definition.placement import GpuNodes
from stacks.definition.pools import Pool
from stacks.mig_layouts import Layout, layout, more_nodes
from stacks.problems import count_of

from .answers import Answer


@dataclass(frozen=True)
class Cutting:
    """The layout of a data plane's GPUs that gives an answer, and what its other pools ask for."""

    gpus: tuple[GpuNodes, ...]
    """The inventory of today."""
    bought: tuple[GpuNodes, ...]
    """Nodes that are not there today."""
    layout: Layout | None
    """None: no cut of all these was found that gives it."""

    def inventory(self) -> list[dict[str, Any]]:
        """Return the inventory as a definition has it; nothing where it stays as it is."""
        if self.layout is None or not (self.bought or self.layout.changes):
            return []
        alike: list[GpuNodes] = []
        for group in self.layout.gpus:
            before = next((place for place, one in enumerate(alike) if _of_one(one) == _of_one(group)), None)
            if before is None:
                alike.append(group)
            else:
                alike[before] = alike[before].model_copy(update={"nodes": alike[before].nodes + group.nodes})
        return [each.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True) for each in alike]

    def said(self) -> Iterator[str]:
        """Yield what is to be done, as sentences."""
        one = self.layout
        for place, each in enumerate(self.bought, len(self.gpus)):
            new = [(change.nodes, change.after) for change in (one.changes if one else ()) if change.group == place]
            left = each.nodes - sum(nodes for nodes, _ in new)
            every = [*new, *([(left, next((cut.slices for _, cut in each.layouts), {}))] if left else [])]
            cut = ", ".join(f"{nodes} of {words(cut) or 'whole GPUs'}" for nodes, cut in every)
            yield f"It takes {count_of(each.nodes, 'node')} more of {each.product} with {each.per_node} each: {cut}."
        if one is None:
            yield "No cut of its GPUs was found that gives these slices."
            return
        again = [change for change in one.changes if change.group < len(self.gpus)]
        if again:
            drained, nodes = sum(change.nodes for change in again), sum(group.nodes for group in self.gpus)
            yield f"To drain and cut again: {drained} of {count_of(nodes, 'node')}."
            yield from (f"  {change}" for change in again)
        elif self.gpus:
            yield "No node is to be cut anew."


def cutting(gpus: Sequence[GpuNodes], others: Sequence[Pool], answer: Answer, pools: Sequence[Pool]) -> Cutting:
    """Return how an inventory is to be cut for the pools of an answer, beside what other pools on it ask for.

    Where it has too few GPUs, or none of the product, it gets more. Of a GPU whose node label is not known, new ones
    are taken under its name, and nothing else is on them.
    """
    there = tuple(gpus) if answer.gpu.label else ()
    asked = devices.asked([*(others if there else ()), *pools])
    bought: list[GpuNodes] = []
    if answer.gpu.label not in {group.product for group in there}:
        bought.append(_nodes(answer.gpu.label or answer.gpu.name, _fewest(answer)))
    one = layout([*there, *bought], asked)
    if one is None and (more := more_nodes([*there, *bought], asked)):
        place = min(more, key=lambda each: (more[each], each))
        bought.append([*there, *bought][place].model_copy(update={"nodes": more[place]}))
        one = layout([*there, *bought], asked)
    return Cutting(there, tuple(bought), one)


def _fewest(answer: Answer) -> int:
    """Return on how many GPUs an answer's slices stand, each cut as serves best."""
    if not answer.on.profile:
        return answer.replicas
    return len(cuts(answer.gpu.product, {answer.on.profile: answer.replicas}))


def _nodes(product: str, nodes: int) -> GpuNodes:
    return GpuNodes.model_validate({"nodes": nodes, "product": product, "perNode": 1})


def _of_one(group: GpuNodes) -> GpuNodes:
    return group.model_copy(update={"nodes": 1})
