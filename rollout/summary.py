"""What came out: a table of the stacks, how environments differ, and how to go on."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from policies.guardrails.rules.money import cost_of
from stacks.problems import escaped, listed, shortened
from stacks.stack import Definition, Stack

from .changes.workloads import gpu_slices
from .render import Rendered
from .room import lines, room_of
from .terminal import in_shell, tidegate

MOST_STACKS = 24
MOST_DIFFERENCES = 24
MOST_PAIRS = 4
_LONGEST = 60
_TAGS = ("kind", "mode", "cloud", "engine")
_UNSET: tuple[Any, ...] = (None, (), [], {})


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
        slices = "\n".join(f"{count} × {name}" for name, count in sorted(gpu_slices(rendered.objects).items()))
        month = str(cost_of(rendered.objects)) if slices else ""
        out.add_row(Text(stack.name), Text(objects), Text(slices or "none"), Text(month), Text(datasets or "none"))
    if len(stacks) > MOST_STACKS:
        out.add_row(f"… and {len(stacks) - MOST_STACKS} more", "", "", "", "")
    return out


def money_and_room(definition: Definition, stacks: Sequence[Stack], rendering: Sequence[Rendered]) -> str:
    """Return what each stack costs, and the room that is left in its pools."""
    costs = [(stack, cost_of(rendered.objects)) for stack, rendered in zip(stacks, rendering, strict=True)]
    told = lines((stack.name, str(cost), room_of(stack, definition)) for stack, cost in costs[:MOST_STACKS])
    more = [f"  … and {len(costs) - MOST_STACKS} more stacks"] if len(costs) > MOST_STACKS else []
    return "\n".join(["GPUs a month (730 hours), and room, autoscalers at their most:", *told, *more])


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
    """Return every value in which two stacks differ: `proxy.replicas 1 → autoscaled 3–12`."""
    return [f"{path} {old} → {new}" for path, old, new in _walk(_tree(one), _tree(other), "")]


def _tree(stack: Stack) -> dict[str, Any]:
    head = stack.environment.model_dump(by_alias=True, include={"production", "local", "labels", "annotations"})
    return {"namespace": stack.namespace, **head, **stack.platform.model_dump(by_alias=True)}


def _walk(old: Any, new: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if old == new:
        return
    both = isinstance(old, Mapping) and isinstance(new, Mapping)
    if both and all(old[tag] == new[tag] for tag in _TAGS if tag in old and tag in new):
        yield from _walk_mappings(old, new, path)
    elif isinstance(old, Sequence) and isinstance(new, Sequence) and _named(old) and _named(new):
        before, after = ({item["name"]: item for item in items} for items in (old, new))
        for name in {**before, **after}:
            yield from _walk(before.get(name), after.get(name), f"{path}.{name}")
        if before == after:
            yield f"{path} (order)", _short(list(before)), _short(list(after))
    else:
        yield path, _short(old), _short(new)


def _walk_mappings(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    scaled = {"replicas", "autoscaling"} <= old.keys() & new.keys()
    for key in {**old, **new}:
        inside = f"{path}.{key}" if path else key
        if key == "replicas" and scaled:
            if (before := _scaling(old)) != (after := _scaling(new)):
                yield inside, before, after
            if old["autoscaling"] and new["autoscaling"]:
                below, above = ({**item["autoscaling"], "min": 0, "max": 0} for item in (old, new))
                yield from _walk(below, above, f"{path}.autoscaling")
        elif not (key == "autoscaling" and scaled):
            yield from _walk(old.get(key), new.get(key), inside)


def _scaling(part: Mapping[str, Any]) -> str:
    if bounds := part["autoscaling"]:
        return f"autoscaled {bounds['min']}–{bounds['max']}"
    return "default" if part["replicas"] is None else str(part["replicas"])


def _named(items: Sequence[Any]) -> bool:
    return not isinstance(items, str) and all(isinstance(item, Mapping) and "name" in item for item in items)


def _short(value: Any) -> str:
    """Return a value in a few words: what is not set is left out, and the kind of a thing comes first."""
    return escaped(shortened(_words(value), _LONGEST))


def _words(value: Any) -> str:
    if value in _UNSET:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        tag = next((str(value[tag]) for tag in (*_TAGS, "name") if tag in value), "")
        told = ((key, item) for key, item in value.items() if key not in (*_TAGS, "name") and item not in _UNSET)
        rest = [f"{key} {_words(item)}" for key, item in told]
        return f"{tag} ({', '.join(rest)})" if tag and rest else tag or ", ".join(rest)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_words(item) for item in value)}]"
    return str(value)
