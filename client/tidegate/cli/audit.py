"""`tidegate verify`, `diff`, `history` and `prune`: what environments have, compared, told and tidied up."""

import re
from typing import Annotated

import typer

from ..api import Tidegate
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
    with answering(), Tidegate(tell=note, progress=progress) as tidegate:
        said = tidegate.verify(environment, models or ())
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


def diff(
    one: Annotated[str, typer.Argument(help="An environment, such as dev.")],
    other: Annotated[str, typer.Argument(help="Another one, such as prod.")],
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    json: Json = False,
) -> None:
    """Show what differs between two environments: versions, files, configurations, and how they are called.

    Exit code 1 where something does.
    """
    with answering(), Tidegate() as tidegate:
        found = tidegate.diff(one, other, model)
        if json:
            print_json([each.model_dump(mode="json", by_alias=True) for each in found])
        elif found:
            rows = ((each.model, each.what, each.one, each.other) for each in found)
            print_table(("model", "what", one, other), rows)
        else:
            print(f"nothing differs between {one} and {other}")
        if found:
            raise typer.Exit(ExitCode.FOUND)


def history(
    model: Annotated[str, typer.Argument(help="The model.")],
    environment: Annotated[str | None, typer.Option("--in", help="Only this environment.")] = None,
    json: Json = False,
) -> None:
    """Show what became of a model: who registered, deployed, promoted and rolled back which version, when and where."""
    with answering(), Tidegate(tell=note) as tidegate:
        records = tidegate.history(model, environment)
        if json:
            print_json(records)
            return
        rows = (
            (
                each.when.strftime("%Y-%m-%d %H:%M:%SZ"), each.what, each.version, each.previous, each.environment,
                each.plane, each.source, each.who, (each.manifest_sha256 or "")[:12],
                re.sub("[0-9a-f]{64}", lambda digest: digest[0][:12], each.note),
            )
            for each in records
        )  # fmt: skip
        columns = (
            "when", "what", "#version", "#before", "environment", "data plane", "from", "who", "manifest", "note",
        )  # fmt: skip
        print_table(columns, rows)


def prune(
    environment: Annotated[str, typer.Argument(help="The environment, such as prod.")],
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only shown.")] = False,
    json: Json = False,
) -> None:
    """Show the versions that nobody serves and no rollback needs, and with --yes remove them.

    The registry keeps them all: `tidegate deploy` and `tidegate promote` bring any of them back.
    """
    with answering(), Tidegate(tell=note, progress=progress) as tidegate:
        found = tidegate.unserved(environment, model)
        if found and not json:  # before anything is removed
            rows = ((each.model, each.version, size(each.bytes), each.where) for each in found)
            print_table(("model", "#version", "#size", "where"), rows)
        removed = tidegate.prune(environment, found) if yes else []
        if json:
            print_json({"unserved": found, "removed": removed})
            return
        if yes:
            print(f"removed {counted(len(removed), 'version')}, {size(sum(each.bytes for each in removed))}")
        else:
            total = size(sum(each.bytes for each in found))
            more = "; --yes removes them" if found else ""
            print(f"{counted(len(found), 'version')} that nobody serves, {total}{more}")
