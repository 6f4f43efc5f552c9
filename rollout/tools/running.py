"""Runs programs with a timeout and a log: a ToolError has the end of the log. Repeats functions in the background."""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


class ToolError(Exception):
    """A tool is not available. The text has the tool, the log, its last lines and the remedy."""


def on_path(name: str) -> list[Path]:
    """Return every executable of this name on the PATH, in order, each once even if /bin links to /usr/bin."""
    paths = (Path(folder, name).absolute() for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
    found = {path.resolve(): path for path in paths if path.is_file() and os.access(path, os.X_OK)}
    return [*found.values()]


def output_of(command: Sequence[str | Path], environment: Mapping[str, str], seconds: float = 20) -> str:
    """Return the output of a command such as `go version`. Empty if it fails or takes too long."""
    try:
        # In the root directory, so that no go.mod of the caller applies. Without a terminal, so that nothing waits.
        done = subprocess.run(
            command, capture_output=True, timeout=seconds, cwd="/", stdin=subprocess.DEVNULL, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def leash(signal: str) -> list[str]:
    """Return a command prefix that signals the command when its starter's thread ends. Empty without util-linux."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", signal] if setpriv else []


def run(
    command: Sequence[str],
    log: Path,
    seconds: float,
    failed: str,
    remedy: str,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> str:
    """Run a command and return its output, which the log gets while it runs. Raises ToolError with `failed`, the
    reason, the end of the log, and the remedy."""
    with log.open("wb") as file:
        file.write(f"$ {' '.join(command)}\n".encode())
        file.flush()
        try:
            nothing = subprocess.DEVNULL
            done = subprocess.run(
                command, cwd=folder, env=environment, stdin=nothing, stdout=file, stderr=file, timeout=seconds
            )
            status = f"exit code {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            status = f"not done after {seconds:.0f} s"
        except OSError as error:
            status = str(error)
    if status:
        raise ToolError(failure(failed, status, log, remedy))
    return log.read_text("utf-8", errors="replace").partition("\n")[2]


def failure(failed: str, status: str, log: Path, remedy: str) -> str:
    """Return the message of a failure: what failed, the reason, the log's path and last lines, and the remedy."""
    return f"{failed}: {status}\n{tail(log)}\n  remedy: {remedy}"


def tail(log: Path, lines: int = 15) -> str:
    """Return the path of a log, and its last lines."""
    text = log.read_text("utf-8", errors="replace").splitlines() if log.is_file() else []
    last = "\n".join(f"    {line[:300]}" for line in text[-lines:])
    return f"  log: {log}\n  its last lines:\n{last or '    (it is empty)'}"


@contextmanager
def repeating(
    *works: Callable[[], object], pause: float = 0.0, meanwhile: Callable[[], object] | None = None
) -> Iterator[None]:
    """Call each of these repeatedly, each in its own thread, until the block ends. `pause` is in seconds. After the
    block, `meanwhile` is called repeatedly until the last calls have ended."""
    over = threading.Event()

    def repeat(work: Callable[[], object]) -> None:
        while not over.wait(pause):
            work()

    threads = [threading.Thread(target=repeat, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        while meanwhile is not None and any(thread.is_alive() for thread in threads):
            meanwhile()
        for thread in threads:
            thread.join()
