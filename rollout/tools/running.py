"""Runs programs with a time limit and a log; a failure is a ToolError that shows the end of the log and a way out.

And does things over and over meanwhile.
"""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


class ToolError(Exception):
    """A tool cannot be had: the text names the tool, the log, the last lines of the cause and the way out."""


def on_path(name: str) -> list[Path]:
    """Return every executable of this name on the PATH, first one first; each once, though /bin may be /usr/bin."""
    paths = (Path(folder, name).absolute() for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
    found = {path.resolve(): path for path in paths if path.is_file() and os.access(path, os.X_OK)}
    return [*found.values()]


def ask(command: Sequence[str | Path], environment: Mapping[str, str], seconds: float = 20) -> str:
    """Return what a command prints when it is asked for its version; nothing when it fails or takes too long."""
    try:
        # In the root folder, so that no go.mod around the caller has a say; without a terminal, so that nothing waits.
        done = subprocess.run(
            command, capture_output=True, timeout=seconds, cwd="/", stdin=subprocess.DEVNULL, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def leash(signal: str) -> list[str]:
    """Return words before a command that gets a signal when the thread that started it ends, however that ends.

    None where util-linux is not there.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", signal] if setpriv else []


def run(
    command: Sequence[str],
    log: Path,
    seconds: float,
    failed: str,
    way_out: str,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> str:
    """Run a command and return its output, which goes into the log while it runs.

    Raises ToolError: what has `failed`, how, the end of the log, and the way out.
    """
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
        raise ToolError(failure(failed, status, log, way_out))
    return log.read_text("utf-8", errors="replace").partition("\n")[2]


def failure(failed: str, status: str, log: Path, way_out: str) -> str:
    """Return what is said of something that failed: how, where its log is, its last lines, and the way out."""
    return f"{failed}: {status}\n{tail(log)}\n  way out: {way_out}"


def tail(log: Path, lines: int = 15) -> str:
    """Return where a log is, and its last lines."""
    text = log.read_text("utf-8", errors="replace").splitlines() if log.is_file() else []
    last = "\n".join(f"    {line[:300]}" for line in text[-lines:])
    return f"  log: {log}\n  its last lines:\n{last or '    (it is empty)'}"


@contextmanager
def repeating(
    *works: Callable[[], object], pause: float = 0.0, meanwhile: Callable[[], object] | None = None
) -> Iterator[None]:
    """Call each of these over and over, on a thread of its own, as long as the block lasts; `pause` is in seconds.

    `meanwhile` is called over and over after the block, until the last calls have ended.
    """
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
