"""Watches over a start whose programs are to outlive it: when the starter is killed half-way, they end.

The watcher is a process of its own, and reads a pipe of which the starter holds the other end. A word means that the
start is over, well or badly; an end without a word, that the starter is dead.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import folder as place
from . import processes
from .control_plane import ClusterBusyError

COMMAND = (sys.executable, "-c", f"from {__name__} import main; main()")
_OVER = b"over"


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Let a process of its own watch over a start in this folder, which must be locked."""
    watcher = subprocess.Popen(
        [*COMMAND, str(folder)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # what kills the starter's whole group must not kill its watcher
    )
    try:
        yield
    finally:
        watcher.communicate(_OVER)


def main() -> None:
    """Wait until the start in a folder, the only argument, is over; when it was killed, end what it has started."""
    folder = Path(sys.argv[1])
    if sys.stdin.buffer.read(len(_OVER)) == _OVER:
        return
    while place.made(folder):
        try:
            with place.locked(folder):
                # With its last file a start is done, by whomever: it was too late to be killed half-way.
                if not (folder / place.STATE).exists():
                    processes.end(folder)
                return
        except ClusterBusyError:  # the next start, which clears away itself; or the dead one's lock, for a moment
            time.sleep(0.1)
