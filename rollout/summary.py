"""What came out: a table of the stacks, how environments differ, and how to go on."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from stacks.devices import device, devices_per_replica, most_replicas
from stacks.problems import escaped, listed
from stacks.stack import Definition, Stack

from .contexts import context_of
from .differences import differences, pairs
from .terminal import in_shell, make

MOST_STACKS = 24
MOST_DIFFERENCES = 24
MOST_PAIRS = 4


def table(stacks: Sequence[Stack], kinds: dict[str, Counter[str]]) -> Table:
    """Return a table with a row a stack: its objects by kind, the GPU slices it asks for, its datasets."""
    out = Table(show_lines=True)
    for name in ("Stack", "Objects", "GPU slices", "Datasets"):
        out.add_column(name, overflow="fold")
    for stack in stacks[:MOST_STACKS]:
        counts = kinds[stack.name]
        names = (kind if count == 1 else f"{count}×{kind}" for kind, count in counts.items())
        objects = f"{counts.total()}: {', '.join(names)}"
        datasets = "\n".join(f"{dataset.name} ({dataset.kind})" for dataset in stack.platform.datasets)
        out.add_row(Text(stack.name), Text(objects), Text(gpu_slices(stack)), Text(datasets or "none"))
    if len(stacks) > MOST_STACKS:
        out.add_row(f"… and {len(stacks) - MOST_STACKS} more", "", "", "")
    return out


def gpu_slices(stack: Stack) -> str:
    """Return what a stack asks for of each kind of device, with autoscalers at their most."""
    wanted: Counter[str] = Counter()
    for server in stack.platform.servers:
        for pool in server.pools:
            if kind := device(pool.placement):
                wanted[str(kind)] += most_replicas(pool) * devices_per_replica(pool.placement)
    return "\n".join(f"{count} × {name}" for name, count in sorted(wanted.items())) or "none"


def how_they_differ(definition: Definition) -> str:
    """Return the values in which environments differ, and those in which stacks of one environment do."""
    lines = []
    found = pairs(definition)
    for title, one, other in found[:MOST_PAIRS]:
        values = differences(one, other)
        lines.append(f"What differs, {title}:" if values else f"What differs, {title}: nothing")
        lines += [f"  {value}" for value in values[:MOST_DIFFERENCES]]
        if len(values) > MOST_DIFFERENCES:
            lines.append(f"  … and {len(values) - MOST_DIFFERENCES} more")
    if len(found) > MOST_PAIRS:
        lines.append(f"… and {len(found) - MOST_PAIRS} more pairs of stacks")
    return "\n".join(lines)


def how_to_go_on(definition: Definition, stacks: Sequence[Stack], only: str | None, out: Path) -> str:
    """Return where the files are, and how they come to a cluster; `only` is the one stack that was asked for."""
    first = stacks[0]
    context = context_of(first.data_plane)
    contexts = listed(dict.fromkeys(context_of(stack.data_plane) for stack in stacks), most=8)
    return (
        f"Files: {escaped(str(out))}/<stack>/, one object a file; they sort in the order to apply them in.\n"
        f"On to a cluster ({contexts}):\n"
        f"  {make('up', CLUSTER=context, DEFINITION=definition.file, OUT=out, STACK=only)}\n"
        f"  kubectl --context {in_shell(context)} apply --server-side -f {in_shell(out / first.name)}/"
    )


def by_kind(objects: Sequence[dict[str, Any]]) -> Counter[str]:
    """Count objects by kind, in the order in which they are applied."""
    return Counter(item["kind"] for item in objects)
