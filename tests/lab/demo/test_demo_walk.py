"""The walk ends at the first claim that does not hold. These tests need no Triton."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from rich.console import Console
from tidegate.errors import UnreachableError
from typer.testing import CliRunner
from urllib3.exceptions import HTTPError

from lab.demo import __main__ as command
from lab.demo import walk, zoo
from lab.demo.playing import Scene, claim
from lab.demo.show import Show
from lab.demo.stage import Stage
from lab.local_plane.process import CannotBeHadError, ProcessError


class Quiet(Stage):
    """A stage without processes that samples no slice."""

    @contextmanager
    def sampling(self) -> Iterator[None]:
        yield


def stage(out: io.StringIO) -> Quiet:
    nothing: Any = SimpleNamespace(check=lambda: None)
    return Quiet(nothing, nothing, Show(Console(file=out, width=100)))


def scene(name: str, play: Callable[[Stage], str]) -> Scene[Stage]:
    return Scene(f"title of {name}", f"claim of {name}", play)


def good(_: Stage) -> str:
    return "it held"


def bad(_: Stage) -> str:
    claim(False, "fox was loaded 2 times")
    return ""


def overrun(here: Stage) -> str:
    here.most_bytes = zoo.CAPACITY_BYTES + 1
    return ""


def throws(error: BaseException) -> Callable[..., NoReturn]:
    def throw(*_: object) -> NoReturn:
        raise error

    return throw


def test_after_every_scene_its_parts_must_still_run() -> None:
    here = stage(io.StringIO())
    here.platform.check = throws(ProcessError("Triton ended with 1"))  # type: ignore[method-assign]
    with pytest.raises(ProcessError):
        walk.play(here, [scene("one", good)])


@pytest.mark.parametrize(
    ("play", "why"),
    [
        (bad, "fox was loaded 2 times"),
        (overrun, "but the capacity is"),
        (throws(ConnectionResetError("connection reset")), "connection reset"),
        (throws(HTTPError("nothing listens there")), "nothing listens there"),
        (throws(UnreachableError("the proxy cannot be reached")), "the proxy cannot be reached"),
    ],
)
def test_the_first_that_does_not_hold_is_the_last(play: Callable[[Stage], str], why: str) -> None:
    out = io.StringIO()
    here = stage(out)
    with pytest.raises(SystemExit, match=r"^1$"):
        walk.play(here, [scene("one", good), scene("two", play), scene("three", good)])
    assert re.search(f"it held.*title of two.*The claim does not hold: .*{why}", out.getvalue(), re.DOTALL)
    assert "title of three" not in out.getvalue()


@pytest.fixture
def plain_signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def ends_with(monkeypatch: pytest.MonkeyPatch, error: Callable[[], object], *arguments: str) -> Any:
    @contextmanager
    def platform(*_: object) -> Iterator[Any]:
        error()
        yield None

    monkeypatch.setattr(command, "platform", platform)
    monkeypatch.setattr(command, "world", platform)
    return CliRunner().invoke(command.app, [*arguments])


@pytest.mark.usefixtures("plain_signals")
@pytest.mark.parametrize("name", ["walk", "lifecycle-up"])
@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (CannotBeHadError("a real Triton: its wheels want glibc 2.35 or newer"), 3, "glibc 2.35 or newer."),
        (ProcessError("Triton ended with 1:\nits log"), 1, "Triton ended with 1"),
    ],
)  # fmt: skip
def test_an_obstacle_is_one_clear_message(
    monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException, status: int, sentence: str
) -> None:
    done = ends_with(monkeypatch, throws(error), name)
    assert done.exit_code == status
    assert sentence in done.output
    assert "Traceback" not in done.output


@pytest.mark.usefixtures("plain_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize(("name", "status"), [("walk", 130), ("lifecycle-up", 0)])
def test_a_signal_ends_it(monkeypatch: pytest.MonkeyPatch, number: int, name: str, status: int) -> None:
    done = ends_with(monkeypatch, lambda: os.kill(os.getpid(), number), name)
    assert done.exit_code == status
    assert "All its processes have stopped" in done.output


PARTS = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from lab.demo import __main__ as demo

parts = ExitStack()
parts.callback(Path(sys.argv[1]).touch)
with demo._running("parts", lambda _: parts):
    print("started", flush=True)
    time.sleep(60)
"""


def test_a_closed_terminal_ends_it_even_if_make_leads_the_session(tmp_path: Path) -> None:
    """Then only make gets the signal, and waits for the demo, as this shell does."""
    ours, theirs = pty.openpty()
    leader = ["setsid", "--ctty", "bash", "-c", 'trap : HUP; "$@"', "make", sys.executable, "-c", PARTS]
    with subprocess.Popen([*leader, tmp_path / "ended"], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        while b"started" not in os.read(ours, 1024):
            pass
        os.close(ours)
        process.wait(20)
    assert (tmp_path / "ended").exists()
