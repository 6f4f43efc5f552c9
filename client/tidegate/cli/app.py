"""The command line `tidegate`. Each command imports its modules when it runs, so that help does not wait for MLflow."""

import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import ExitCode
from ..output import DEFECT
from ..triton.cli.entries import new
from ..triton.cli.export import export
from . import life
from .calls import predict, status
from .model import check
from .top import top
from .why import why

EPILOG = f"Exit codes: {' · '.join(f'{code.value} {code.meaning}' for code in ExitCode)} · {DEFECT} a defect."


def application(words: str) -> typer.Typer:
    """Return a command line without commands, with `words` as its help."""
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, epilog=EPILOG, help=words
    )

    def version(wanted: bool) -> None:
        if wanted:
            print(f"tidegate {__version__}")
            raise typer.Exit

    @app.callback()
    def _options(
        _: Annotated[
            bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        pass

    return app


def add_commands(app: typer.Typer) -> None:
    """Add the commands for models to a command line."""
    model = typer.Typer(
        no_args_is_help=True, help="Create and check entries: directories of Triton models or language models."
    )
    app.add_typer(model, name="model", short_help="Create and check entries.")
    for group, command, words in (
        (model, new, "Create a Triton entry from a model's files."),
        (model, check, "Report what servers would refuse or ignore."),
        (app, export, "Export a trained scikit-learn model as an entry."),
        (app, life.register, "Register an entry in MLflow."),
        (app, life.deploy, "Deploy a version to an environment such as dev."),
        (app, life.promote, "Promote a version to the next environment."),
        (app, life.rollback, "Go back to the previous version."),
        (app, life.undeploy, "Remove a model from an environment."),
        (app, life.verify, "Compare an environment with the registry."),
        (app, life.history, "Show who deployed which version where."),
        (app, life.prune, "Remove versions that are not served."),
        (app, predict, "Call a model."),
        (app, status, "List models, their state and their versions."),
        (app, top, "Show a live view of every slice."),
        (app, why, "Explain where a model is and what it waits for."),
    ):
        group.command(short_help=words)(command)


app = application("The life of a model: create, register, deploy, promote, roll back, call.")
add_commands(app)
PLATFORM = (
    "advise", "chart", "check", "dashboards", "down", "environments", "guardrails", "init", "pin", "plan",
    "preflight", "preview", "render", "rollout", "schema", "trace", "up", "values",
)  # fmt: skip
"""Commands of the platform. This package does not contain them."""


def _is_for_admins(ctx: typer.Context) -> None:
    words = f"`tidegate {ctx.info_name}` is a command for platform admins, but only the model commands are installed."
    print(f"{words}\nRun in a checkout of Tidegate: uv tool install --force .", file=sys.stderr)
    raise typer.Exit(ExitCode.USAGE)


def alone() -> typer.Typer:
    """Return the model commands. Each platform command is a stand-in that prints what to install."""
    for name in PLATFORM:
        settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
        app.command(name, hidden=True, context_settings=settings)(_is_for_admins)
    return app
