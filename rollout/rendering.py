"""`render`: every stack as YAML in a folder, one object a file. `preview` shows what that would change."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from policies.guardrails.devices import device_counts
from policies.guardrails.rules.money import cost_of
from stacks.command import CommandError, ExitStatus, chosen_stacks
from stacks.problems import advisory_text, count_of, escaped, listed
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from . import output
from .changes.names import under_names_of_now
from .guardrails import enforce, findings
from .render import Rendered, render
from .terminal import console, in_shell, progress, tidegate

MOST_STACKS = 24


def render_all(path: Path, out: Path, only: str | None, outcome: ExitStatus) -> None:
    """Render a definition's stacks (or one of them) into a folder, and summarise them."""
    definition = read_definition(path)
    stacks = chosen_stacks(definition, only)
    before = output.read_index(out)  # a folder of somebody else is refused at once
    rendering = [render(stack, definition) for stack in progress(stacks, len(stacks), "stacks rendered")]
    guarded = enforce(findings(rendering, definition))
    if before and only and not output.same_definition(before, definition.file):
        raise CommandError(
            f"{escaped(str(out))} holds a rendering of {escaped(before.definition)}, and one stack of "
            f"{escaped(definition.file)} cannot stand among its stacks.\nRender without --stack, or name another "
            "folder with --out <folder>."
        )
    if before:
        output.refuse_foreign(out, before)
    there = under_names_of_now(before.stacks, stacks) if before else {}
    kept = {name: files for name, files in there.items() if name != only} if only else {}
    index = output.new_index(definition.file, rendering, kept)
    files = sum(len(item.files) for item in rendering)
    written = f"{count_of(files, 'file')} written"
    if index == before and all(output.texts_of(out, index)[item.stack] == item.files for item in rendering):
        written = "Nothing changed"
    else:
        output.write(output.real(out), index, rendering, kept, outcome)
    screen = console()
    screen.print(_table(stacks, rendering))
    for paragraph in (advisory_text(definition.advisories), guarded, _next_steps(definition, stacks, only, out)):
        if paragraph:
            screen.print(paragraph, soft_wrap=True)
    screen.print(f"{written}.")


def _table(stacks: Sequence[Stack], rendering: Sequence[Rendered]) -> Table:
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


def _next_steps(definition: Definition, stacks: Sequence[Stack], only: str | None, out: Path) -> str:
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
