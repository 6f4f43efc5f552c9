"""`python -m lab.demo walk` shows the data plane, `lifecycle` a model's life, `llm` language models, `scaling` a pool
that follows load; `up` and `lifecycle-up` let it run."""

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console

from lab.local_plane.environment import LocalEnvironment
from lab.local_plane.process import CannotBeHadError, ProcessError
from lab.local_plane.prometheus import prometheus

from . import llm, scaling, walk
from .alerts import rules
from .lifecycle import scenes as life
from .lifecycle.notebook import write_shell
from .lifecycle.world import World, world
from .llm import language_plane
from .show import Show
from .stage import platform

FAILED, CANNOT, INTERRUPTED = 1, 3, 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHECK_SECONDS = 0.5
STAYS = (
    "A part that hangs (kill -STOP) does so until kill -CONT; Kubernetes would end it within a minute or so. The demo "
    "ends when a part ends. Logs stay."
)
PLANE = "two Tritons, the policy and two proxies"
SCALED = "a control plane, KEDA, Prometheus and a proxy"
WORLD = "MLflow, S3, four Tritons, two policies, two proxies"
LANGUAGE = "two of NVIDIA Dynamo, and a proxy"
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
    _show(PLANE, platform, walk.perform, "To try it yourself: make demo-up")


@app.command()
def lifecycle() -> None:
    """Show the life of a model, from a notebook to production and back; every claim is checked."""
    _show(WORLD, world, life.perform, "To do it yourself: docs/models.md")


@app.command("llm")
def language_models() -> None:
    """Show language models behind the proxy, served by NVIDIA Dynamo; the demo checks every claim."""
    _show(LANGUAGE, language_plane, llm.perform, "Read more in docs/openai.md")


@app.command("scaling")
def follow_load() -> None:
    """Show a pool that follows a wave of load by KEDA; the demo checks every claim."""
    _show(SCALED, scaling.scaled_pool, scaling.perform, "Read more in docs/scaling.md")


@app.command()
def lifecycle_up() -> None:
    """Leave MLflow, S3, dev and prod running, for the commands of docs/models.md, until Ctrl-C."""
    with _running(WORLD, world, stays=True) as (made, show):
        text = (
            f"In another terminal:\n\n. {write_shell(made)}\n\nThat shell is the developer's, stands in a folder "
            "with what a notebook has left, and knows every variable and command of docs/models.md."
        )
        _stay(made, text, show)


@app.command()
def up() -> None:
    """Leave it running, and print what to try, until Ctrl-C."""
    with _running(PLANE, platform, stays=True) as (made, show), ExitStack() as stack:
        seen = None
        try:
            seen = stack.enter_context(prometheus(made.root / "prometheus", made.pods, rules=rules()))
        except CannotBeHadError as error:
            print(f"You cannot make a trace of your calls here, for there is no Prometheus: {error}.", flush=True)
        show.the_zoo()
        _stay(made, walk.to_try(made, seen), show)


def _show(
    what: str,
    run: Callable[[Path], AbstractContextManager[Made]],
    perform: Callable[[Made, Show], None],
    more: str,
) -> None:
    """Run something, and play its scenes; `more` says what else there is."""
    with _running(what, run) as (made, show):
        perform(made, show)
    show.say(more)


def _stay(made: LocalEnvironment | World, text: str, show: Show) -> NoReturn:
    """Print what there is and what you can try, and run until Ctrl-C; raises ProcessError when a part ends."""
    show.parts(made.parts)
    print(f"\n{STAYS}\n\n{text}\n\nIt runs until Ctrl-C.", flush=True)
    while True:
        made.check()
        time.sleep(CHECK_SECONDS)


@contextmanager
def _running(
    what: str, run: Callable[[Path], AbstractContextManager[Made]], *, stays: bool = False
) -> Iterator[tuple[Made, Show]]:
    """Run something in a folder of its own, and end it in order, with one clear message and an exit code.

    Of one that stays, an interruption is the end that is waited for, and its logs are kept.
    """
    show = Show(Console())
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    try:
        with ExitStack() as stack:
            with show.console.status(f"starting {what} …"):
                made = stack.enter_context(run(folder))
            yield made, show
    except InterruptedBySignal:
        show.say("It has ended, and nothing is left running.")
        raise SystemExit(0 if stays else INTERRUPTED) from None
    except CannotBeHadError as error:
        print(f"The demo cannot run here: {error}.", file=sys.stderr)
        raise SystemExit(CANNOT) from None
    except ProcessError as error:
        print(error, file=sys.stderr)
        raise SystemExit(FAILED) from None
    finally:
        if stays:
            _remove_all_but_logs(folder)
        else:
            shutil.rmtree(folder)


def _remove_all_but_logs(folder: Path) -> None:
    for path in (*sorted(folder.rglob("*"), reverse=True), folder):
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):  # a log is in it
                path.rmdir()
        elif path.suffix != ".log":
            path.unlink()
    if folder.exists():
        print(f"Its logs are kept in {folder}", flush=True)


def _interrupt(*_: Any) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # from here on it ends
    raise InterruptedBySignal


if __name__ == "__main__":
    app(prog_name="python -m lab.demo")
