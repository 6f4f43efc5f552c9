"""The processes of a local cluster: started, found again, and ended by their ids.

Every process carries two marks in its environment, the cluster's folder and the program's name. By these, and by that
program in its command line, it is found again by any other process, at any moment and without a file of ids: an id that
was given to somebody else since, and a start that was killed half-way, need no thought. A process that only inherited
the marks is somebody else's.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from rollout.tools.running import leash, tail

from .control_plane import PROGRAMS, ClusterError

FOLDER_MARK = "TIDEGATE_CLUSTER"
PROGRAM_MARK = "TIDEGATE_PROGRAM"
END_SECONDS = 10


def spawn(
    program: str, command: Sequence[str], folder: Path, *, outlives: bool, variables: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a program of the cluster in its folder, its output in `logs/<program>.log`.

    Unless it `outlives` its starter, the kernel kills it when the thread that started it ends, however that ends. It
    stands in a session of its own, so that Ctrl-C at a terminal reaches only the starter, which then ends the programs
    itself.
    """
    # Without what has a say in what these programs do, or whom they call.
    theirs = {key for key in os.environ if key.startswith(("ETCD_", "KUBE")) or key.lower().endswith("_proxy")}
    environment = {key: value for key, value in os.environ.items() if key not in theirs}
    marks = {FOLDER_MARK: str(folder), PROGRAM_MARK: program}
    launcher = [] if outlives else leash("KILL")
    with (folder / "logs" / f"{program}.log").open("wb") as log:
        return subprocess.Popen(
            [*launcher, *command],
            cwd=folder,
            env=environment | dict(variables or {}) | marks,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def of(folder: Path) -> dict[str, int]:
    """Return the ids of the programs that run for the cluster in this folder, by their names."""
    mark = os.fsencode(f"{FOLDER_MARK}={folder}")
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and mark in (marks := _words(entry / "environ")):
            # A launcher, which is about to become the program, names it as one of its words.
            words = {os.path.basename(word) for word in _words(entry / "cmdline")}
            for program in map(os.fsencode, PROGRAMS):
                if os.fsencode(PROGRAM_MARK) + b"=" + program in marks and program in words:
                    found[os.fsdecode(program)] = int(entry.name)
    return found


def end(folder: Path, children: Sequence["subprocess.Popen[bytes]"] = ()) -> None:
    """End what runs for the cluster in this folder, and wait until it is gone.

    Killed outright: all that these programs could still save is thrown away with the cluster.
    """
    deadline = time.monotonic() + END_SECONDS
    with ExitStack() as stack:
        # One that has lost its memory is found no more, and may hold its ports a moment longer: its handle tells.
        handles: dict[int, int] = {}
        while (running := of(folder)) or not all(map(_ended, handles.values())):
            for pid in {*running.values()} - handles.keys():
                with suppress(ProcessLookupError):
                    handles[pid] = os.pidfd_open(pid)
                    stack.callback(os.close, handles[pid])
                    signal.pidfd_send_signal(handles[pid], signal.SIGKILL)
            for child in children:
                child.poll()
            if time.monotonic() > deadline:
                left = ", ".join(f"{name} ({pid})" for name, pid in running.items()) or "none is found, one still ends"
                raise ClusterError(f"These processes of the local cluster in {folder} do not end: {left}.")
            time.sleep(0.01)
    for child in children:
        child.wait()


def wait_for(
    what: str,
    there: Callable[[], bool],
    children: Mapping[str, "subprocess.Popen[bytes]"],
    folder: Path,
    seconds: float,
) -> None:
    """Wait until something is there; raise ClusterError when it takes too long or a program has ended by then."""
    deadline, logs = time.monotonic() + seconds, folder / "logs"
    while True:
        done = there()
        for name, child in children.items():
            if child.poll() is not None:
                raise ClusterError(f"{name} ended with exit code {child.returncode}.\n{tail(logs / f'{name}.log')}")
        if done:
            return
        if time.monotonic() > deadline:
            tails = "\n".join(tail(logs / f"{name}.log", 5) for name in children)
            raise ClusterError(f"{what}: not there after {seconds:.0f} s.\n{tails}")
        time.sleep(0.03)


def refuse_other_systems() -> None:
    """Raise ClusterError where these programs cannot be watched over: all of this is made for Linux."""
    if not sys.platform.startswith("linux"):
        raise ClusterError(
            "A local cluster needs Linux, and this is another system.\n"
            "Run this in a Linux container or virtual machine, or name the context of a real cluster."
        )


def _ended(handle: int) -> bool:
    """Tell whether the process has ended to which a handle belongs, reaped or not."""
    return bool(select.select([handle], [], [], 0)[0])


def _words(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\0")
    except OSError:  # it ended meanwhile, or belongs to somebody else
        return []
