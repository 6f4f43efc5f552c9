"""Runs other programs to their end, and finds out whether a process is still running."""

import fcntl
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
    passing: Callable[[str], object] = bool,
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, and return it whatever its exit code is.

    It gets the variables in `environment`, and this process's variables whose names are `passing` (default: all).

    On a timeout or an interrupt, its child processes, such as login plugins, are killed too. Raises
    subprocess.TimeoutExpired, and CommandError if the program cannot be run.
    """
    fed = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    inherited = {name: value for name, value in os.environ.items() if passing(name)}
    where = {"cwd": cwd, "env": {**inherited, **(environment or {})}}
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
    """Start a program with readable text output, errors included. Raise CommandError if it cannot be run."""
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **more}
    try:
        return subprocess.Popen(command, text=True, errors="replace", **how)
    except OSError as error:
        raise CommandError(f"{command[0]} cannot be run: {error.strerror}.") from None


def end_all() -> None:
    """Kill all programs that any thread runs, and their child processes."""
    for process in [*_running]:
        _kill(process)


def _kill(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        if process.returncode is None:  # else its id may already be another process's
            os.killpg(process.pid, signal.SIGKILL)


def lives(process: int) -> bool:
    """Return whether a process with this id is running. A zombie is not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    return True


#
# A host name and a process id do not identify a process, because containers repeat both. A locked file in the machine's
# temporary directory does. The system unlocks it when the last process that has it open ends.


def life_file(name: str) -> Path:
    """Return the file that a process of this machine locks while it runs."""
    return Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}-{name}.alive"


@contextmanager
def showing_life(name: str) -> Iterator[None]:
    """Lock the file of that name during the block. If this process is killed, the system unlocks it."""
    file = os.open(life_file(name), os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        life_file(name).unlink(missing_ok=True)
        os.close(file)


def has_died(name: str) -> bool:
    """Return whether the process behind `showing_life(name)` has ended. False if this machine cannot know."""
    try:
        file = os.open(life_file(name), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    life_file(name).unlink(missing_ok=True)
    return True
