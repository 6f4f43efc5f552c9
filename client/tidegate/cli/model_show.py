"""`tidegate model show`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Json, answering, console, print_json, print_table, size

if TYPE_CHECKING:
    from ..triton.entries.show import Shown


def show(
    entry: Annotated[Path, typer.Argument(help="The entry's folder, which holds config.pbtxt.")],
    json: Json = False,
) -> None:
    """Show an entry: its tensors, how Triton runs it, and an ensemble's steps as a drawing."""
    with answering():
        from ..triton.entries.entry import read_entry
        from ..triton.entries.show import show_entry

        shown = show_entry(entry)
        if json:
            print_json(shown.model_dump(mode="json"))
        else:
            print_entry(shown, read_entry(entry).config)


def print_entry(shown: "Shown", config: Any) -> None:
    """Print an entry for people."""
    from ..triton.entries.drawing import draw, shape

    versions = ", ".join(map(str, shown.versions)) or "none"
    print(f"{shown.name}: {shown.backend}, version {versions}, {shown.files} files, {size(shown.size)}")
    if shown.steps:
        console().print(draw(config, shown))
    else:
        rows = [
            (side, tensor.name, shape(tensor), ", ".join(tensor.notes))
            for side, tensors in (("input", shown.inputs), ("output", shown.outputs))
            for tensor in tensors
        ]
        if rows:
            print_table(("", "tensor", "type and shape", ""), rows)
        else:
            print("its tensors are known once Triton has loaded it")
    for what, how in shown.runs:
        print(f"{what}: {how}")
