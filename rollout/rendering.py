"""`render`: writes every stack as YAML to a directory, one object per file."""

from collections.abc import Sequence
from pathlib import Path

from stacks import devices
from stacks.command import ExitStatus, chosen_stacks, in_shell, tidegate
from stacks.problems import advisory_text, count_of, escaped, listed
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from . import output
from .guardrails import enforce, findings
from .render import Rendered, render
from .terminal import progress

MOST_STACKS = 24


def render_all(path: Path, out: Path, only: str | None, outcome: ExitStatus) -> None:
    """Render a definition's stacks (or one of them) to a directory, and print a summary."""
    definition = read_definition(path)
    stacks = chosen_stacks(definition, only)
    rendering = [render(stack, definition) for stack in progress(stacks, len(stacks), "stacks rendered")]
    guarded = enforce(findings(rendering))
    own = [each.name for each in (stacks[0], *stacks[0].former())] if only else None
    files = sum(len(item.files) for item in rendering)
    written = f"{count_of(files, 'file')} written" if output.write(out, rendering, own, outcome) else "Nothing changed"
    for stack, rendered in [*zip(stacks, rendering, strict=True)][:MOST_STACKS]:
        print(_summary(stack, rendered))
    if len(rendering) > MOST_STACKS:
        print(f"… and {len(rendering) - MOST_STACKS} more")
    if len(bill := devices.bill(stacks)) > 1:
        print(bill[-1])
    for paragraph in (advisory_text(definition.advisories), guarded, _next_steps(definition, stacks, only, out)):
        if paragraph:
            print(paragraph)
    print(f"{written}.")


def _summary(stack: Stack, rendered: Rendered) -> str:
    """Return one line: a stack's objects, its GPU slices and their cost."""
    slices = devices.summary(devices.taken(stack))
    return f"{rendered.stack}: {count_of(len(rendered.objects), 'object')}{', ' if slices else ''}{slices}"


def _next_steps(definition: Definition, stacks: Sequence[Stack], only: str | None, out: Path) -> str:
    """Return the location of the files, and the commands that apply them. `only` is the one stack that was chosen."""
    first = stacks[0]
    context = first.data_plane.context_name
    contexts = listed(dict.fromkeys(stack.data_plane.context_name for stack in stacks), most=8)
    return (
        f"Files: {escaped(str(out))}/<stack>/, one object per file. Their names sort in apply order.\n"
        f"To apply them to a cluster ({contexts}):\n"
        f"  {tidegate('up', definition.file, cluster=context, stack=only)}\n"
        f"  kubectl --context {in_shell(context)} apply --server-side -f {in_shell(out / first.name)}/"
    )
