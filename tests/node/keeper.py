"""Keeps a node for as long as somebody uses it, and leaves nothing of it behind. `python -m tests.node.keeper FOLDER`.

The node lives in network, mount and PID namespaces of its own. When its first process is ended, the kernel ends every
other one in it, containers too, and takes mounts and network away; that leaves its cgroups and its folder. Whoever uses
the node holds a shared lock on the file `users`: the kernel drops it when its holder dies, however it dies.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from .inside import PARTS, failed
from .parts import have_parts

USERS, CGROUP, PROCESS = "users", "cgroup", "process"
ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def keep(folder: Path) -> None:
    """Start a node and end it when nobody uses it any more, or when it could not be brought up."""
    (folder / "log").mkdir()
    try:
        have_parts().write(folder / PARTS)  # while there is a network
    except Exception as error:
        failed(folder, error)
        _leave(folder)
        raise
    (folder / CGROUP).write_text(f"/tidegate-{folder.name}")
    for place in cgroup_mounts():
        (place / f"tidegate-{folder.name}").mkdir()
    with (folder / "log" / "inside.log").open("ab") as log, (folder / USERS).open("a") as users:
        # Ends with this process, even when that is killed.
        command = ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, sys.executable, "-m", "tests.node.inside"]
        outer = subprocess.Popen([*command, str(folder)], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            first = _only_child(outer)
            (folder / PROCESS).write_text(str(first))
            while outer.poll() is None and not nobody_uses(users):
                time.sleep(0.05)
        finally:
            with suppress(ProcessLookupError, UnboundLocalError):
                if outer.poll() is None:
                    os.kill(first, signal.SIGKILL)
            outer.wait()
    _leave(folder)


def _leave(folder: Path) -> None:
    """Clean up as soon as nobody wants to read why the node could not be brought up, or ended."""
    with (folder / USERS).open("a") as users:
        while not nobody_uses(users):
            time.sleep(0.05)
        clean(folder)


def nobody_uses(users: IO[str]) -> bool:
    """Take the lock that nobody else can have then, and tell whether that worked."""
    with suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _only_child(parent: subprocess.Popen[bytes]) -> int:
    """Return the process that `unshare` started: the first one of the PID namespace."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == parent.pid:
                    return int(stat.parent.name)
        time.sleep(0.02)
    raise RuntimeError("unshare started no process")


def cgroup_mounts() -> list[Path]:
    """Return where cgroups are made: the controllers of version 1, or else version 2."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    one = [Path(place) for place, kind in mounts if kind == "cgroup"]
    return one or [Path(place) for place, kind in mounts if kind == "cgroup2"]


def clean(folder: Path) -> None:
    """Take away the cgroups and the folder of a node whose processes are gone."""
    for mounted in Path("/proc/self/mounts").read_text().splitlines():
        place, kind = mounted.split()[1:3]
        if kind in ("cgroup", "cgroup2"):
            for group, _, _ in os.walk(Path(place) / f"tidegate-{folder.name}", topdown=False):
                _remove_group(Path(group))
    gone = folder.with_name(f".{folder.name}.{os.getpid()}.gone")
    with suppress(FileNotFoundError):
        folder.rename(gone)  # at once: the next node of this name may already be on its way
    shutil.rmtree(gone, ignore_errors=True)


def _remove_group(group: Path) -> None:
    """Remove a cgroup; the kernel needs a moment after its last process."""
    for _ in range(100):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
