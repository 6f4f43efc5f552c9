import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")
HOW: dict[str, Any] = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}


@contextmanager
def programs(module: str, known: Mapping[str, str] | None = None) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Yield a function that starts `python -m <module> …` in a new process group, which ends with the block."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **environment: str) -> "subprocess.Popen[str]":
        command, folder = [sys.executable, "-m", module, *map(str, arguments)], Path(__file__).resolve().parents[1]
        environment = {**os.environ, **(known or {}), **environment}
        # A background job ignores Ctrl-C, and its child processes would inherit that.
        listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        started.append(subprocess.Popen(command, cwd=folder, env=environment, preexec_fn=listen, **HOW))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def marked(text: str) -> set[int]:
    """Return the ids of the running processes whose command or environment contains a text."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            known = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue  # It has just ended.
        if text.encode() in known:
            found.add(int(process.name))
    return found


def until(what: str, there: Callable[[], Found | None], seconds: float = 600) -> Found:
    """Return the result of `there` as soon as it is true. Fail after a time that is long enough for slow machines."""
    deadline, pause = time.monotonic() + seconds, 0.05
    while not (found := there()):
        assert time.monotonic() < deadline, f"not after {seconds:.0f} s: {what}"
        time.sleep(pause)
        pause = min(0.5, 1.5 * pause)  # Many checks start kubectl, which slows down the system under test.
    return found


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", *who, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
