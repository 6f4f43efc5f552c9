"""`tidegate`: all commands together. What a command needs is imported when it runs: help must not wait for MLflow."""

import os
import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import ExitCode
from ..triton.cli.entries import new
from ..triton.cli.export import export
from ..triton.cli.tune import tune
from . import life
from .calls import models, predict, status
from .model import check, show
from .output import DEFECT
from .top import top
from .why import why

EPILOG = f"Exit codes: {'; '.join(f'{code.value} {code.meaning}' for code in ExitCode)}; {DEFECT} defect."

app = typer.Typer(
    name="tidegate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EPILOG,
    help="The life of a model: make it, register it, deploy it to dev, promote it to prod, roll it back, call it.",
)
model = typer.Typer(
    no_args_is_help=True, help="Make, check and show entries: folders of Triton models, or of language models."
)
app.add_typer(model, name="model", short_help="Make, check and show entries.")
for group, command, words in (
    (model, new, "Make an entry for Triton from a model's files."),
    (model, check, "Say what servers would refuse or ignore."),
    (model, show, "Show tensors, settings, an ensemble's graph."),
    (app, export, "Make an entry of a trained model."),
    (app, life.register, "Register an entry in MLflow."),
    (app, life.deploy, "Bring a version into an environment such as dev."),
    (app, life.promote, "Bring a version into the next, such as prod."),
    (app, life.rollback, "Go back to the version before."),
    (app, life.undeploy, "Take a model out of an environment."),
    (app, life.verify, "Compare an environment with the registry."),
    (app, life.history, "Show who brought which version where."),
    (app, life.prune, "Remove versions that nobody serves."),
    (app, predict, "Call a model."),
    (app, models, "Show which models there are, and where."),
    (app, status, "Show what is in memory, used, and hot."),
    (app, top, "Show what sits in every slice, live."),
    (app, why, "Say where a model is, and why it does not answer."),
    (app, tune, "Find the best batches and instances."),
):
    group.command(short_help=words)(command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def _tidegate(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and nothing else.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    # A stream that was closed (`>&-`) is None in Python; what is printed to it goes nowhere.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show an arrow is no reason to fail
    app(prog_name="tidegate")
