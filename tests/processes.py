"""Processes of this machine: started to be looked at, and found by what they were told."""

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
    """Return how to start `python -m <module> …`, each in a process group of its own that ends with the block."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **environment: str) -> "subprocess.Popen[str]":
        command, folder = [sys.executable, "-m", module, *map(str, arguments)], Path(__file__).resolve().parents[1]
        environment = {**os.environ, **(known or {}), **environment}
        # Started from a job in the background, the tests may have been told to ignore Ctrl-C, and would hand it on.
        listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        started.append(subprocess.Popen(command, cwd=folder, env=environment, preexec_fn=listen, **HOW))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def marked(text: str) -> set[int]:
    """Return the ids of the processes whose command or environment names a text; none that has ended."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue  # it has just ended
        if text.encode() in told:
            found.add(int(process.name))
    return found


def until(what: str, there: Callable[[], Found | None], seconds: float = 600) -> Found:
    """Return what `there` returns as soon as it is true, and fail when that takes too long: on a slow machine too."""
    deadline, pause = time.monotonic() + seconds, 0.05
    while not (found := there()):
        assert time.monotonic() < deadline, f"not after {seconds:.0f} s: {what}"
        time.sleep(pause)
        pause = min(0.5, 1.5 * pause)  # many a look starts kubectl, which takes the time of what is waited for
    return found


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody; return what it prints."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", *who, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
