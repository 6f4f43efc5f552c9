"""`preview`: what would change, against the last rendering or a git revision. Nothing is written."""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from stacks.problems import escaped, listed
from stacks.stack import Definition
from stacks.validate import read_definition

from . import output, swap
from .change_report import report, total
from .check import counted
from .choose import chosen
from .errors import RolloutError
from .render import render
from .revision import rendering_of
from .terminal import console, make, note, progress
from .up import changes_since

MOST_FIELDS = 40

Texts = Mapping[str, Mapping[str, str]]


def preview_changes(path: Path, out: Path, only: str | None, base: str | None) -> None:
    """Say what would change in every stack, or in one of them."""
    definition = read_definition(path)
    stacks = chosen(definition, only)
    if base is None:
        texts, against = _last_rendering(definition, out), f"the rendering in {escaped(str(out))}"
    else:
        with rendering_of(base, path) as folder:
            texts, against = _texts(folder), escaped(base)
    rendering = [
        render(stack, definition.lock, definition.file) for stack in progress(stacks, len(stacks), "stacks evaluated")
    ]
    changes = changes_since(texts, rendering, () if only else texts)
    screen = console()
    screen.print(f"Against {against}:", soft_wrap=True)
    if text := report(changes, fields=MOST_FIELDS):
        screen.print(text, soft_wrap=True)
    screen.print(total(changes) or f"Nothing would change in {counted(changes, 'stack')}.")


def _last_rendering(definition: Definition, out: Path) -> Texts:
    place = swap.real(out)
    nothing = RolloutError(
        f"There is no rendering in {escaped(str(out))} yet. Make one, or compare with a git revision:\n"
        f"  {make('up', DEFINITION=definition.file, OUT=out)}\n"
        f"  {make('preview', BASE='main', DEFINITION=definition.file)}"
    )
    if output.read_index(out) is None and not swap.beside(place, "old").exists():
        raise nothing
    # A folder that nobody may write is no folder that another run is writing.
    free = os.access(place.parent, os.W_OK)
    with swap.locked(place, "waiting: another run is writing there …") if free else nullcontext():
        index = output.read_index(out)
        if index is None:
            raise nothing
        found = output.look(out, index)
    if not output.same_definition(index, definition.file):
        note(f"{escaped(str(out))} holds a rendering of another definition, {escaped(index.definition)}.")
    if found.edited or found.missing:
        by_hand = listed((*found.edited, *found.missing), most=5)
        note(f"edited or removed by hand since the last run: {by_hand}. `make up` writes them anew.")
    return found.texts


def _texts(folder: Path) -> Texts:
    """Read a rendering that another version of this code wrote: only folders of YAML files are relied on."""
    return {
        stack.name: {file.name: file.read_text("utf-8") for file in sorted(stack.glob("*.yaml")) if file.is_file()}
        for stack in sorted(folder.iterdir())
        if stack.is_dir()
    }
