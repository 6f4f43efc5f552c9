"""`render`: writes every stack as YAML to a directory, one object per file.

It writes and removes only files that begin with its heading.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from stacks import devices
from stacks.command import CommandError, ExitStatus, chosen_stacks, in_shell, reason, tidegate
from stacks.problems import advisory_text, count_of, escaped, listed
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from .guardrails import enforce, findings
from .render import HEADING, Rendered, render
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
    written = f"{count_of(files, 'file')} written" if _write(out, rendering, own, outcome) else "Nothing changed"
    for stack, rendered in [*zip(stacks, rendering, strict=True)][:MOST_STACKS]:
        slices = devices.summary(devices.taken(stack))
        print(f"{rendered.stack}: {count_of(len(rendered.objects), 'object')}{', ' if slices else ''}{slices}")
    if len(rendering) > MOST_STACKS:
        print(f"… and {len(rendering) - MOST_STACKS} more")
    if len(bill := devices.bill(stacks)) > 1:
        print(bill[-1])
    for paragraph in (advisory_text(definition.advisories), guarded, _next_steps(definition, stacks, only, out)):
        if paragraph:
            print(paragraph)
    print(f"{written}.")


def _write(out: Path, rendering: Sequence[Rendered], stacks: Collection[str] | None, outcome: ExitStatus) -> bool:
    """Write a rendering, and remove earlier files from the directories of these stacks (None: all). Return whether
    anything changed. Raises CommandError if a foreign file has the same path, or if a file cannot be written."""
    wanted = {out / item.stack / name: text.encode() for item in rendering for name, text in item.files.items()}
    try:
        there = {
            path: path.read_bytes()
            for path in sorted(out.glob("*/*.yaml"))
            if path.is_file() and (stacks is None or path.parent.name in stacks)
        }
        ours = {path for path, text in there.items() if text.startswith(HEADING.encode())}
        if foreign := [path for path in wanted if path not in ours and os.path.lexists(path)]:
            what = f"Tidegate did not write {escaped(str(foreign[0]))}, but would replace it"
            raise CommandError(f"{what}.\nMove it away, or set another directory with --out <directory>.")
        changed = [path for path, text in wanted.items() if there.get(path) != text]
        gone = ours - wanted.keys()
        if changed or gone:
            outcome.text = f"{out} may contain a part of the new rendering. Run the same command again"
        for path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted[path])
        for path in gone:
            path.unlink()
            with suppress(OSError):  # it contains other files
                path.parent.rmdir()
    except OSError as error:
        raise CommandError(f"{escaped(str(out))} could not be written: {reason(error)}") from None
    return bool(changed or gone)


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
