"""The demos. `python -m lab.demo walk` shows the data plane, `lifecycle` a model's life, `llm` language models, and
`scaling` a pool that follows load. `up` and `lifecycle-up` keep running.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
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
    "To make a process hang, run kill -STOP <pid>, and kill -CONT <pid> to resume it. Kubernetes would restart it "
    "after about a minute. If a process ends, the demo ends. The logs stay."
)
PLANE = "two Triton servers, the eviction policy and two proxies"
SCALED = "a control plane, KEDA, Prometheus and a proxy"
WORLD = "MLflow, S3, four Triton servers, two eviction policies and two proxies"
LANGUAGE = "two NVIDIA Dynamos and a proxy"
Made = TypeVar("Made")
app = typer.Typer(
    name="demo", add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
    help="Run the data plane on this machine, with a zoo of small models.",
)  # fmt: skip


class InterruptedBySignal(BaseException):
    """Ctrl-C, SIGTERM, or a closed terminal."""


@app.command("walk")
def walk_through() -> None:
    """Show the data plane in scenes. The demo checks every claim, and exits with 1 at the first that does not hold."""
    _show(PLANE, platform, walk.perform, "To try it yourself, run: make demo-up")


@app.command()
def lifecycle() -> None:
    """Show the life of a model, from a notebook to production and back. The demo checks every claim."""
    _show(WORLD, world, life.perform, "To do it yourself, run make demo-lifecycle-up and follow docs/models.md")


@app.command("llm")
def language_models() -> None:
    """Show language models behind the proxy, served by NVIDIA Dynamo. The demo checks every claim."""
    _show(LANGUAGE, language_plane, llm.perform, "Read more in docs/openai.md")


@app.command("scaling")
def follow_load() -> None:
    """Show how KEDA scales a pool through a wave of load. The demo checks every claim."""
    _show(SCALED, scaling.scaled_pool, scaling.perform, "Read more in docs/scaling.md")


@app.command()
def lifecycle_up() -> None:
    """Run MLflow, S3, dev and prod until Ctrl-C, for the commands of docs/models.md."""
    with _running(WORLD, world, stays=True) as (made, show):
        text = (
            f"In another terminal:\n\n. {write_shell(made)}\n\nThat shell is the developer's. It is in a directory "
            "with a notebook's files, and has every variable and command of docs/models.md."
        )
        _stay(made, text, show)


@app.command()
def up() -> None:
    """Run the data plane until Ctrl-C, and print commands to try."""
    with _running(PLANE, platform, stays=True) as (made, show), ExitStack() as stack:
        seen = None
        try:
            seen = stack.enter_context(prometheus(made.root / "prometheus", made.pods, rules=rules()))
        except CannotBeHadError as error:
            print(f"The demo runs without Prometheus, so you cannot record a trace of your calls: {error}.", flush=True)
        walk.introduce(show)
        _stay(made, walk.to_try(made, seen), show)


def _show(
    what: str, run: Callable[[Path], AbstractContextManager[Made]], perform: Callable[[Made, Show], None], more: str
) -> None:
    with _running(what, run) as (made, show):
        perform(made, show)
    show.print(more)


def _stay(made: LocalEnvironment | World, text: str, show: Show) -> NoReturn:
    """Print the processes and `text`, and run until Ctrl-C. Raises ProcessError when a process ends."""
    show.parts(made.parts)
    print(f"\n{STAYS}\n\n{text}\n\nThe demo runs until you press Ctrl-C.", flush=True)
    while True:
        made.check()
        time.sleep(CHECK_SECONDS)


@contextmanager
def _running(
    what: str, run: Callable[[Path], AbstractContextManager[Made]], *, stays: bool = False
) -> Iterator[tuple[Made, Show]]:
    """Run something in a new temporary directory, and exit with one clear message and a code if it fails. With `stays`,
    an interruption is the normal end (exit code 0), and the logs are kept."""
    show = Show(Console())
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    threading.Thread(target=_watch_terminal, daemon=True).start()
    folder = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    try:
        with ExitStack() as stack:
            with show.console.status(f"Starting {what} …"):
                made = stack.enter_context(run(folder))
            yield made, show
    except InterruptedBySignal:
        show.print("The demo has ended. All its processes have stopped.")
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
            with suppress(OSError):  # It contains a log.
                path.rmdir()
        elif path.suffix != ".log":
            path.unlink()
    if folder.exists():
        print(f"The logs are in {folder}", flush=True)


def _watch_terminal() -> None:
    """End the demo when its terminal closes. If `make` leads the session, only `make` gets SIGHUP, and waits."""
    had_one = False
    with suppress(OSError):
        while True:
            os.close(os.open("/dev/tty", os.O_RDONLY))
            had_one = True
            time.sleep(CHECK_SECONDS)
    if had_one:
        os.kill(os.getpid(), signal.SIGHUP)


def _interrupt(*_: Any) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # A second signal must not interrupt the clean-up.
    raise InterruptedBySignal


if __name__ == "__main__":
    app(prog_name="python -m lab.demo")
