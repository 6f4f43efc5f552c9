"""`tidegate`: all commands together. What a command needs is imported when it runs: help must not wait for MLflow."""

import os
import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import ExitCode
from .audit import diff, history, prune, verify
from .deploy import deploy, promote, rollback
from .model import check, new, show
from .output import DEFECT
from .predict import predict
from .register import register
from .status import models, status
from .tune import tune

_MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FOUND: "a check or a comparison found something",
    ExitCode.USAGE: "wrong input",
    ExitCode.REFUSED: "a rule does not allow it",
    ExitCode.BUSY: "somebody else is at it, or the server is busy: try again later",
    ExitCode.NOT_FOUND: "there is no such thing",
    ExitCode.UNREACHABLE: "something cannot be reached, or fails",
    ExitCode.INTEGRITY: "content is not what it should be",
    ExitCode.UNFINISHED: "stopped half way: the same command goes on from there",
    ExitCode.STOPPED: "Ctrl-C",
}
EPILOG = (
    "Exit codes: " + "; ".join(f"{code.value} {words}" for code, words in _MEANINGS.items()) + f"; {DEFECT} defect."
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tidegate {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="tidegate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EPILOG,
    help="The life of a model: make it, register it, deploy it to dev, promote it to prod, roll it back, call it.",
)
model = typer.Typer(no_args_is_help=True, help="Make, check and show entries of a Triton model repository.")
model.command(short_help="Make an entry from a model's files.")(new)
model.command(short_help="Say what Triton would refuse or ignore.")(check)
model.command(short_help="Show tensors, settings, an ensemble's graph.")(show)
app.add_typer(model, name="model")
app.command(short_help="Register an entry in MLflow.")(register)
app.command(short_help="Bring a registered version into dev.")(deploy)
app.command(short_help="Bring a version from dev into prod.")(promote)
app.command(short_help="Go back to the version before.")(rollback)
app.command(short_help="Compare an environment with the registry.")(verify)
app.command(short_help="Show what differs between two environments.")(diff)
app.command(short_help="Show who brought which version where.")(history)
app.command(short_help="Remove versions that nobody serves.")(prune)
app.command(short_help="Call a model.")(predict)
app.command(short_help="Show which models there are, and where.")(models)
app.command(short_help="Show what is in memory, used, and hot.")(status)
app.command(short_help="Find the best batches and instances.")(tune)


@app.callback()
def _tidegate(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and nothing else.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, even while it is still being loaded."""
    # A stream that was closed (`>&-`) is None in Python; what is printed to it goes nowhere.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show an arrow is no reason to fail
    try:
        app(prog_name="tidegate")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(ExitCode.STOPPED)
