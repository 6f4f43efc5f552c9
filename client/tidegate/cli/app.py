"""`tidegate`: all commands together. What a command needs is imported when it runs: help must not wait for MLflow."""

import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import ExitCode
from ..triton.cli.entries import new
from ..triton.cli.export import export
from . import life
from .calls import predict, status
from .model import check
from .output import DEFECT
from .top import top
from .why import why

EPILOG = f"Exit codes: {'; '.join(f'{code.value} {code.meaning}' for code in ExitCode)}; {DEFECT} defect."


def application(words: str) -> typer.Typer:
    """Return a command line without a command; `words` are its help."""
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
            bool,
            typer.Option("--version", callback=version, is_eager=True, help="Print the version, and nothing else."),
        ] = False,
    ) -> None:
        pass

    return app


def add_commands(app: typer.Typer) -> None:
    """Add the commands for models to a command line."""
    model = typer.Typer(
        no_args_is_help=True, help="Make and check entries: folders of Triton models, or of language models."
    )
    app.add_typer(model, name="model", short_help="Make and check entries.")
    for group, command, words in (
        (model, new, "Make an entry for Triton from a model's files."),
        (model, check, "Say what servers would refuse or ignore."),
        (app, export, "Make an entry of a trained scikit-learn model."),
        (app, life.register, "Register an entry in MLflow."),
        (app, life.deploy, "Bring a version into an environment such as dev."),
        (app, life.promote, "Bring a version into the next, such as prod."),
        (app, life.rollback, "Go back to the version before."),
        (app, life.undeploy, "Take a model out of an environment."),
        (app, life.verify, "Compare an environment with the registry."),
        (app, life.history, "Show who brought which version where."),
        (app, life.prune, "Remove versions that are not served."),
        (app, predict, "Call a model."),
        (app, status, "Show models: where, and in memory."),
        (app, top, "Show what sits in every slice, live."),
        (app, why, "Say where a model is, and why it does not answer."),
    ):
        group.command(short_help=words)(command)


app = application("The life of a model: make, register, deploy, promote, roll back, call.")
add_commands(app)
PLATFORM = (
    "advise", "chart", "check", "dashboards", "down", "environments", "guardrails", "init", "pin", "plan",
    "preflight", "preview", "render", "rollout", "schema", "trace", "up", "values",
)  # fmt: skip
"""Commands of the whole of Tidegate, which this package is a part of."""


def _is_for_admins(ctx: typer.Context) -> None:
    words = f"`tidegate {ctx.info_name}` is for platform admins, and only the commands for models are installed here."
    print(f"{words}\nIn a checkout of Tidegate, run: uv tool install --force .", file=sys.stderr)
    raise typer.Exit(ExitCode.USAGE)


def alone() -> typer.Typer:
    """Return the commands for models, with stand-ins for all others that name what to install."""
    for name in PLATFORM:
        settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
        app.command(name, hidden=True, context_settings=settings)(_is_for_admins)
    return app
