"""What came out: a table of the stacks, how environments differ, and how to go on."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from policies.guardrails.devices import device_counts
from policies.guardrails.rules.money import cost_of
from stacks.problems import escaped, listed
from stacks.stack import Definition, Stack

from .changes.compare import field_changes
from .changes.report import values
from .render import Rendered
from .terminal import in_shell, tidegate

MOST_STACKS = 24
MOST_DIFFERENCES = 24
MOST_PAIRS = 4


def table(stacks: Sequence[Stack], rendering: Sequence[Rendered]) -> Table:
    """Return a table with a row a stack: its objects by kind, its GPU slices and what they cost, its datasets."""
    out = Table(show_lines=True)
    for name in ("Stack", "Objects", "GPU slices", "A month", "Datasets"):
        out.add_column(name, overflow="fold")
    for stack, rendered in [*zip(stacks, rendering, strict=True)][:MOST_STACKS]:
        counts = Counter(item["kind"] for item in rendered.objects)
        names = (kind if count == 1 else f"{count}×{kind}" for kind, count in counts.items())
        objects = f"{counts.total()}: {', '.join(names)}"
        datasets = "\n".join(f"{dataset.name} ({dataset.kind})" for dataset in stack.platform.datasets)
        slices = "\n".join(f"{count} × {name}" for name, count in sorted(device_counts(rendered.objects).items()))
        month = str(cost_of(rendered.objects)) if slices else ""
        out.add_row(Text(stack.name), Text(objects), Text(slices or "none"), Text(month), Text(datasets or "none"))
    if len(stacks) > MOST_STACKS:
        out.add_row(f"… and {len(stacks) - MOST_STACKS} more", "", "", "", "")
    return out


def how_they_differ(definition: Definition) -> str:
    """Return the values in which environments differ, and those in which stacks of one environment do."""
    lines = []
    found = pairs(definition)
    for title, one, other in found[:MOST_PAIRS]:
        values = [f"  {value}" for value in differences(one, other)]
        if len(values) > MOST_DIFFERENCES:
            values[MOST_DIFFERENCES:] = [f"  … and {len(values) - MOST_DIFFERENCES} more"]
        lines += [f"What differs, {title}:{'' if values else ' nothing'}", *values]
    if len(found) > MOST_PAIRS:
        lines.append(f"… and {len(found) - MOST_PAIRS} more pairs of stacks")
    return "\n".join(lines)


def how_to_go_on(definition: Definition, stacks: Sequence[Stack], only: str | None, out: Path) -> str:
    """Return where the files are, and how they come to a cluster; `only` is the one stack that was asked for."""
    first = stacks[0]
    context = first.data_plane.context_name
    contexts = listed(dict.fromkeys(stack.data_plane.context_name for stack in stacks), most=8)
    return (
        f"Files: {escaped(str(out))}/<stack>/, one object a file; they sort in the order to apply them in.\n"
        f"On to a cluster ({contexts}):\n"
        f"  {tidegate('up', definition.file, cluster=context, stack=only)}\n"
        f"  kubectl --context {in_shell(context)} apply --server-side -f {in_shell(out / first.name)}/"
    )


# ---- how stacks differ in what their definition says: the values in force, side by side ----


def pairs(definition: Definition) -> list[tuple[str, Stack, Stack]]:
    """Return which stacks to compare, and what the comparison is called.

    The first environment's first stack with every other environment's, then each environment's with its further ones.
    """
    stacks: dict[str, list[Stack]] = {environment.name: [] for environment in definition.header.environments}
    for stack in definition.stacks:
        stacks[stack.environment.name].append(stack)
    first, *others = [found[0] for found in stacks.values() if found]
    between = [(f"{first.environment.name} → {other.environment.name}", first, other) for other in others]
    within = [(f"{one[0].name} → {other.name}", one[0], other) for one in stacks.values() for other in one[1:]]
    return between + within


def differences(one: Stack, other: Stack) -> list[str]:
    """Return every value in which two stacks differ: `proxy.replicas 1 → 3`."""
    return [f"{each.place} {values(each)}" for each in field_changes(_tree(one), _tree(other))]


def _tree(stack: Stack) -> dict[str, Any]:
    head = stack.environment.model_dump(by_alias=True, include={"production", "local", "labels", "annotations"})
    return {
        "namespace": stack.namespace,
        **head,
        **stack.platform.model_dump(mode="json", by_alias=True, exclude_defaults=True),
    }
