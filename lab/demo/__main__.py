"""`python -m lab.demo walk` shows the data plane, `lifecycle` a model's life; `up`, `lifecycle-up` let it run."""

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console

from lab.local_plane.process import CannotBeHadError, ProcessError

from . import playing, walk
from .lifecycle import scenes as life
from .lifecycle.notebook import write_shell
from .lifecycle.stage import LifeStage
from .lifecycle.stage import introduce as introduce_life
from .lifecycle.world import world
from .show import Show
from .stage import platform

FAILED, CANNOT, INTERRUPTED = 1, 3, 130
CHECK_SECONDS = 0.5
PLANE = "two Tritons, the policy and two proxies"
WORLD = "MLflow, S3, four Tritons, two policies, two proxies"
Made = TypeVar("Made")
app = typer.Typer(
    name="demo", add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
    help="The whole data plane on this machine, with a zoo of small models.",
)  # fmt: skip


class InterruptedBySignal(BaseException):
    """Ctrl-C, SIGTERM, or a terminal that was closed."""


@app.command("walk")
def walk_through() -> None:
    """Show what it does, scene after scene; every claim is checked, and the first that does not hold ends it with 1."""
    show, begun = Show(Console()), time.monotonic()
    with _ending(show), _running(show, PLANE, platform) as made:
        walk.introduce(made, show)
        played = walk.play(walk.stage_for(made, show))
    playing.report(played, time.monotonic() - begun, show, "To try it yourself: make demo-up")


@app.command()
def lifecycle() -> None:
    """Show the life of a model, from a notebook to production and back; every claim is checked."""
    show, begun = Show(Console()), time.monotonic()
    with _ending(show), _running(show, WORLD, world) as made:
        introduce_life(show)
        played = playing.play(LifeStage(made, show), show, life.SCENES, made.check)
    playing.report(played, time.monotonic() - begun, show, "To do it yourself: docs/models.md")


@app.command()
def lifecycle_up() -> None:
    """Leave MLflow, S3, dev and prod running, for the commands of docs/models.md, until Ctrl-C."""
    show = Show(Console())
    with _ending(show, wanted=True), _running(show, WORLD, world) as made:
        _stay(
            f"In another terminal:\n\n. {write_shell(made)}\n\nThat shell is the developer's, stands in a folder with "
            "what a notebook has left, and knows every variable and command of docs/models.md.",
            made.check,
        )


@app.command()
def up() -> None:
    """Leave it running, and print what to try, until Ctrl-C."""
    show = Show(Console())
    with _ending(show, wanted=True), _running(show, PLANE, platform) as made:
        show.the_zoo()
        _stay(f"\n{walk.to_try(made)}", made.check)


def _stay(said: str, check: Callable[[], None]) -> NoReturn:
    print(f"{said}\n\nIt runs until Ctrl-C.", flush=True)
    while True:
        time.sleep(CHECK_SECONDS)
        check()


@contextmanager
def _running(show: Show, what: str, run: Callable[[Path], AbstractContextManager[Made]]) -> Iterator[Made]:
    """Run something in a folder of its own, which is removed with it."""
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder, ExitStack() as stack:
        with show.console.status(f"starting {what} …"):
            made = stack.enter_context(run(Path(folder)))
        try:
            yield made
        finally:
            with show.console.status("ending …"):
                stack.close()


@contextmanager
def _ending(show: Show, wanted: bool = False) -> Iterator[None]:
    """End in order whatever happens, with one clear message and the exit code that says which kind it was.

    With `wanted`, an interruption is the end that is waited for, and no failure.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        yield
    except InterruptedBySignal:
        show.say("It has ended, and nothing is left running.")
        raise SystemExit(0 if wanted else INTERRUPTED) from None
    except CannotBeHadError as error:
        print(f"The demo cannot run here: {error}.", file=sys.stderr)
        raise SystemExit(CANNOT) from None
    except ProcessError as error:
        print(error, file=sys.stderr)
        raise SystemExit(FAILED) from None


def _interrupt(*_: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # from here on it ends
    raise InterruptedBySignal


if __name__ == "__main__":
    app(prog_name="python -m lab.demo")
