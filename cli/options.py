"""Options that several commands have, and what a shell completes for them."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stacks.stack import Definition as Read

DEFINITION = Path("stacks/inference.yaml")


def _names(of: "Callable[[Read], Iterable[str]]") -> Callable[[typer.Context], list[str]]:
    """Return what completes names of the definition that the line names; it completes nothing if that is wrong."""

    def complete(ctx: typer.Context) -> list[str]:
        from stacks.validate import read_definition  # help must not wait for it

        with suppress(Exception):
            return list(dict.fromkeys(of(read_definition(ctx.params.get("definition") or DEFINITION))))
        return []

    return complete


stacks = _names(lambda read: (stack.name for stack in read.stacks))
environments = _names(lambda read: (stack.environment.name for stack in read.stacks))
contexts = _names(lambda read: (plane.context_name for plane in read.header.data_planes))

Definition = Annotated[Path, typer.Argument(help="The stack definition.")]
Stack = Annotated[str | None, typer.Option(metavar="NAME", help="Only this stack.", autocompletion=stacks)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, and all else on standard error.")]
