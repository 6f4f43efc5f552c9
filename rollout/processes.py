"""Other programs, run to their end; and whether a process is still there."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stacks.command import CommandError

_running: set["subprocess.Popen[str]"] = set()


def run(
    command: Sequence[str | Path],
    *,
    seconds: float,
    stdin: str | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, with these variables beside the user's own; whatever its exit code is, it is returned.

    What it started itself, such as a plugin that logs in, is killed with it when it takes too long or is interrupted.
    Raises subprocess.TimeoutExpired, and CommandError where it cannot be run.
    """
    fed = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    where = {"cwd": cwd, "env": {**os.environ, **(environment or {})}}
    with started(command, stdin=fed, stderr=subprocess.PIPE, start_new_session=True, **where) as process:
        _running.add(process)
        try:
            out, err = process.communicate(stdin, timeout=seconds)
        except BaseException:
            _kill(process)
            raise
        finally:
            _running.discard(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def started(command: Sequence[str | Path], **more: Any) -> "subprocess.Popen[str]":
    """Start a program whose output can be read as text, errors included; raise CommandError where it cannot be run."""
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **more}
    try:
        return subprocess.Popen(command, text=True, errors="replace", **how)
    except OSError as error:
        raise CommandError(f"{command[0]} cannot be run: {error.strerror}.") from None


def end_all() -> None:
    """Kill all programs that are being run by any thread, with what they have started."""
    for process in [*_running]:
        _kill(process)


def _kill(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        if process.returncode is None:  # else its id may be another's by now
            os.killpg(process.pid, signal.SIGKILL)


def lives(process: int) -> bool:
    """Say whether there is a process of this id on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
