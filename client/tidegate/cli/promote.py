"""`tidegate promote`."""

from typing import Annotated

import typer

from .deploy import WAIT_SECONDS, Model, PublicKey, Replace, Root, Wait, show, trusted
from .output import Json, answering, note, progress


def promote(
    model: Model,
    to: Annotated[str, typer.Option("--to", help="The environment, such as prod.")],
    replace: Replace = False,
    wait: Wait = WAIT_SECONDS,
    public_key: PublicKey = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Bring a version from one environment into the next, such as from dev into prod, by the rules of that one."""
    with answering():
        from ..life.context import opened
        from ..life.deploy import promote, wanted

        trust = trusted(public_key, root)
        with opened(trust=trust, tell=note, progress=progress, wait_seconds=wait) as context:
            show(promote(context, wanted(model), to, replace=replace), json)
