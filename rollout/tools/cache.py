"""The cache directory. Everything in it is complete, and was made once, by one process at a time."""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rollout.tools.running import ToolError


def report(message: str) -> None:
    """Print progress to standard error, so that standard output stays free for results."""
    print(message, file=sys.stderr, flush=True)


def cache_root() -> Path:
    """Return the absolute path of `${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/tidegate}`."""
    if own := os.environ.get("TIDEGATE_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification requires that a relative path is ignored.
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / "tidegate"


def digest(*parts: bytes | str) -> str:
    """Return a short hash of these parts. Different lists of parts have different hashes."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()[:16]


def once(target: Path, make: Callable[[Path], None], what: str) -> None:
    """Make the file or directory `target` with `make(partial)`, unless it exists.

    One process makes it while others wait. A rename completes it, so a killed or failed run leaves nothing under its
    name. The next run removes the remains.
    """
    if target.exists():
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.with_name(f".{target.name}.lock"), what):
            if target.exists():
                return
            for left in target.parent.glob(f".{target.name}.*.partial"):
                shutil.rmtree(left, ignore_errors=True)
            # In a new directory, because the child of a killed run may still be writing into the old one.
            staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
            try:
                make(staging / target.name)
                if (staging / target.name).is_file():
                    # Flushed before the rename, because a power failure must not leave an incomplete file.
                    with (staging / target.name).open("rb") as file:
                        os.fsync(file.fileno())
                os.replace(staging / target.name, target)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise ToolError(
            f"cannot make {what} in the cache directory: {error}\n"
            "  remedy: free some space there, or set TIDEGATE_CACHE to a directory that you can write"
        ) from error


@contextmanager
def _lock(lock: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `lock`. The kernel releases it when its holder dies."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Waits no longer than the slowest `make`, because each has a timeout.
            report(f"waiting for another run that makes {what} …")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
