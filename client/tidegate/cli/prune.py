"""`tidegate prune`."""

from typing import Annotated

import typer

from .output import Json, answering, counted, note, print_json, print_table, progress, size


def prune(
    environment: Annotated[str, typer.Argument(help="The environment, such as prod.")],
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only shown.")] = False,
    json: Json = False,
) -> None:
    """Show the versions that nobody serves and no rollback needs, and with --yes remove them.

    The registry keeps them all: `tidegate deploy` and `tidegate promote` bring any of them back.
    """
    with answering():
        from ..life.context import opened
        from ..life.prune import prune, unserved

        with opened(tell=note, progress=progress) as context:
            found = unserved(context, environment, model)
            if found and not json:  # before anything is removed
                rows = ((each.model, each.version, size(each.bytes), each.where) for each in found)
                print_table(("model", "#version", "#size", "where"), rows)
            removed = prune(context, environment, found) if yes else []
        if json:
            print_json({"unserved": found, "removed": removed})
            return
        if yes:
            print(f"removed {counted(len(removed), 'version')}, {size(sum(each.bytes for each in removed))}")
        else:
            total = size(sum(each.bytes for each in found))
            print(
                f"{counted(len(found), 'version')} that nobody serves, {total}"
                + ("; --yes removes them" if found else "")
            )
