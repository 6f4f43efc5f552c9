"""Options of several commands, and their shell completion."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stacks.stack import Definition as Read

DEFINITION = Path("stacks/inference.yaml")


def _names(of: "Callable[[Read], Iterable[str]]") -> Callable[[typer.Context], list[str]]:
    """Return a completion of names in the definition. It completes nothing if the definition is wrong."""

    def complete(ctx: typer.Context) -> list[str]:
        from stacks.validate import read_definition  # not at the top: it would slow --help down

        with suppress(Exception):
            return list(dict.fromkeys(of(read_definition(ctx.params.get("definition") or DEFINITION))))
        return []

    return complete


stacks = _names(lambda read: (stack.name for stack in read.stacks))
environments = _names(lambda read: (stack.environment.name for stack in read.stacks))
contexts = _names(lambda read: (plane.context_name for plane in read.header.data_planes))

Definition = Annotated[Path, typer.Argument(help="The definition file.")]
Stack = Annotated[str | None, typer.Option(metavar="NAME", help="Only this stack.", autocompletion=stacks)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and everything else to stderr.")]
