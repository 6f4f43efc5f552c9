"""`tidegate deploy`, and what it shares with `promote` and `rollback`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import Json, answering, note, print_json, progress

if TYPE_CHECKING:
    from ..life.publish import Outcome
    from ..registry import Trust

MODEL = typer.Argument(help="A model, or a model and its version or alias: fraud, fraud@3, fraud@champion.")
Model = Annotated[str, MODEL]
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
WAIT_SECONDS = 300.0


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
    with answering():
        from ..life.context import opened
        from ..life.deploy import deploy, wanted

        trust = trusted(public_key, root)
        with opened(trust=trust, tell=note, progress=progress, wait_seconds=wait) as context:
            show(deploy(context, wanted(model), to, replace=replace), json)


def trusted(public_key: Path | None, roots: list[Path] | None) -> "Trust | None":
    """Return whose signatures are wanted; None where none is."""
    from ..registry import Trust

    return Trust(public_key, tuple(roots or ())) if public_key is not None or roots else None


def show(outcome: "Outcome", json: bool) -> None:
    """Print what became of it."""
    if json:
        print_json(outcome)
        return
    before = f" (before: version {outcome.previous})" if outcome.previous is not None else ""
    does = "has" if outcome.changed else "has already"
    print(f"{outcome.environment} {does} version {outcome.version} of {outcome.model}{before}")
    for each in outcome.notes:
        note(f"note: {each}")
