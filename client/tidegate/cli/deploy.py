"""`tidegate deploy`, `tidegate promote` and `tidegate rollback`: versions come into environments."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api import Tidegate
from ..life import WAIT_SECONDS
from .output import Json, answering, note, print_json, progress

if TYPE_CHECKING:
    from ..life.publish import Outcome

Model = Annotated[
    str, typer.Argument(help="A model, or a model and its version or alias: fraud, fraud@3, fraud@champion.")
]
Wait = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for Triton to load the version.")]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace", help="Let the old version go as the new one comes, where they cannot serve side by side."
    ),
]
PublicKey = Annotated[
    Path | None,
    typer.Option(
        "--public-key",
        envvar="TIDEGATE_PUBLIC_KEY",
        help="Take only versions signed with this key's other half.",
    ),
]
Root = Annotated[
    list[Path] | None,
    typer.Option("--root", help="Take only versions that are signed with a certificate of this root; may be repeated."),
]


def deploy(
    model: Model,
    to: Annotated[
        str | None, typer.Option("--to", help="The environment; needed where several take any version.")
    ] = None,
    replace: Replace = False,
    wait: Wait = WAIT_SECONDS,
    public_key: PublicKey = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Bring a registered version into an environment such as dev: verified, tried, and only then called."""
    with answering(), _opened(wait, public_key, root) as tidegate:
        _show(tidegate.deploy(model, to, replace=replace), json)


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
    with answering(), _opened(wait, public_key, root) as tidegate:
        _show(tidegate.promote(model, to, replace=replace), json)


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
    with answering(), _opened(wait, public_key, root) as tidegate:
        _show(tidegate.roll_back(model, environment, version, replace=replace), json)


def _opened(wait: float, public_key: Path | None, roots: list[Path] | None) -> Tidegate:
    return Tidegate(public_key=public_key, roots=roots or (), wait_seconds=wait, tell=note, progress=progress)


def _show(outcome: "Outcome", json: bool) -> None:
    if json:
        print_json(outcome)
        return
    before = f" (before: version {outcome.previous})" if outcome.previous is not None else ""
    does = "has" if outcome.changed else "has already"
    print(f"{outcome.environment} {does} version {outcome.version} of {outcome.model}{before}")
    for each in outcome.notes:
        note(f"note: {each}")
