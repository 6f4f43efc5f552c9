"""`tidegate history`."""

import re
from typing import Annotated

import typer

from .output import Json, answering, note, print_json, print_table


def history(
    model: Annotated[str, typer.Argument(help="The model.")],
    environment: Annotated[str | None, typer.Option("--in", help="Only this environment.")] = None,
    json: Json = False,
) -> None:
    """Show what became of a model: who registered, deployed, promoted and rolled back which version, when and where."""
    with answering():
        from ..life.context import opened
        from ..life.history import history

        with opened(tell=note) as context:
            records = history(context, model, environment)
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
