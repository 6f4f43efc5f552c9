"""`tidegate rollback`."""

from typing import Annotated

import typer

from .deploy import WAIT_SECONDS, PublicKey, Replace, Root, Wait, show, trusted
from .output import Json, answering, note, progress


def rollback(
    model: Annotated[str, typer.Argument(help="The model.")],
    environment: Annotated[str, typer.Option("--in", help="The environment, such as prod.")],
    version: Annotated[
        int | None, typer.Option("--version", help="The version to go back to; else the one that was there before.")
    ] = None,
    replace: Replace = False,
    wait: Wait = WAIT_SECONDS,
    public_key: PublicKey = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Go back to the version that an environment had before: nothing is fetched where it is still there."""
    with answering():
        from ..life.context import opened
        from ..life.deploy import rollback

        trust = trusted(public_key, root)
        with opened(trust=trust, tell=note, progress=progress, wait_seconds=wait) as context:
            show(rollback(context, model, environment, version, replace=replace), json)
