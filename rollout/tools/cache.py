"""The cache folder: what is in it is whole, made once, by one process at a time."""

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


def say(message: str) -> None:
    """Tell the person at the terminal what is going on; standard output stays free for results."""
    print(message, file=sys.stderr, flush=True)


def cache_root() -> Path:
    """Return the cache folder: `${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/tidegate}`, made absolute."""
    if own := os.environ.get("TIDEGATE_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG rules say that a relative path is to be ignored.
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / "tidegate"


def digest(*parts: bytes | str) -> str:
    """Return a short key for these parts; no two different lists of parts run together into one."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()[:16]


def once(target: Path, make: Callable[[Path], None], what: str) -> None:
    """Make the file or folder `target` with `make(partial)`, unless it is there already.

    One process makes it while others wait. It appears under its name by a rename, so that a killed or failed run leaves
    nothing that the next one would take for good; what such a run left is swept away.
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
            # A folder with a name of its own: the child of a killed run may still be writing into the old one.
            room = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
            try:
                make(room / target.name)
                if (room / target.name).is_file():
                    # On the disk before it gets its name: a machine that loses power must not leave half of it.
                    with (room / target.name).open("rb") as file:
                        os.fsync(file.fileno())
                os.replace(room / target.name, target)
            finally:
                shutil.rmtree(room, ignore_errors=True)
    except OSError as error:
        raise ToolError(
            f"cannot make {what} in the cache folder: {error}\n"
            "  way out: free some space there, or set TIDEGATE_CACHE to a folder that you may write"
        ) from error


@contextmanager
def _lock(lock: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `lock`; the kernel drops it when its holder dies."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # No longer than the slowest thing made under a lock takes: each has a time-out of its own.
            say(f"waiting for another run that makes {what} …")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
