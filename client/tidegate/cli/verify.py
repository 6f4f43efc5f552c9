"""`tidegate verify`."""

from typing import Annotated

import typer

from ..errors import ExitCode
from .output import Json, answering, counted, note, print_json, print_table, progress, size


def verify(
    environment: Annotated[str, typer.Argument(help="The environment, such as prod.")],
    models: Annotated[list[str] | None, typer.Argument(help="Only these models.")] = None,
    json: Json = False,
) -> None:
    """Compare what an environment's repositories hold with the registry, byte for byte.

    Exit code 7 where content is another than was registered, 1 where anything else was found.
    """
    with answering():
        from ..life.context import opened
        from ..life.verify import verify

        with opened(tell=note, progress=progress) as context:
            said = verify(context, environment, models or ())
        if json:
            print_json(said)
        else:
            if said.found:
                rows = ((each.kind, each.model, each.version, each.what, each.where) for each in said.found)
                print_table(("found", "model", "#version", "what", "where"), rows)
            looked = f"{counted(said.versions, 'version')}, {size(said.bytes)}"
            print(f"{said.environment}: {looked}; {counted(len(said.found), 'finding')}")
        if said.found:
            raise typer.Exit(ExitCode.INTEGRITY if said.content else ExitCode.FOUND)
