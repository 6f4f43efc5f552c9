"""`tidegate diff`."""

from typing import Annotated

import typer

from ..errors import ExitCode
from .output import Json, answering, print_json, print_table


def diff(
    one: Annotated[str, typer.Argument(help="An environment, such as dev.")],
    other: Annotated[str, typer.Argument(help="Another one, such as prod.")],
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    json: Json = False,
) -> None:
    """Show what differs between two environments: versions, files, configurations, and how they are called.

    Exit code 1 where something does.
    """
    with answering():
        from ..life.context import opened
        from ..life.diff import diff

        with opened() as context:
            found = diff(context, one, other, model)
        if json:
            print_json([each.model_dump(mode="json", by_alias=True) for each in found])
        elif found:
            print_table(
                ("model", "what", one, other), ((each.model, each.what, each.one, each.other) for each in found)
            )
        else:
            print(f"nothing differs between {one} and {other}")
        if found:
            raise typer.Exit(ExitCode.FOUND)
