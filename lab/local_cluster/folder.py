"""The folder of a local cluster, which is the cluster's alone."""

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .control_plane import ClusterBusyError, ClusterError, Network

STATE = "cluster.json"  # What another process needs to find the cluster again.
_LOCK = ".lock"
_MARK = "A local cluster of Tidegate made this folder.\n"


def private_folder(folder: Path) -> Path:
    """Return the folder's real path, made when it is not there; its contents are for its owner alone.

    Raises ClusterError where the folder has files and no cluster made it.
    """
    refuse_others(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ClusterError(f"A local cluster cannot live in {folder}: {error.strerror}.") from None
    return folder.resolve()


def refuse_others(folder: Path) -> None:
    """Raise ClusterError where a folder is a link, or has files and no cluster made it."""
    others = folder.is_dir() and any(each.name != _LOCK for each in folder.iterdir()) and not made(folder)
    if folder.is_symlink() or others:
        raise ClusterError(
            f"No local cluster made the files in {folder}: nothing was removed there.\n"
            "Move them away, or let TIDEGATE_CACHE name another folder."
        )


def mark(folder: Path) -> None:
    """Write down that a cluster lives in this folder, which must be locked."""
    (folder / _LOCK).write_text(_MARK, "utf-8")


def clean(folder: Path, *, logs: bool = True) -> None:
    """Remove what is in a cluster's folder, with or without its logs."""
    for path in folder.iterdir():
        if path.name == _LOCK or (path.name == "logs" and not logs):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Remove a cluster's folder."""
    shutil.rmtree(folder, ignore_errors=True)


def made(folder: Path) -> bool:
    """Tell whether a cluster made this folder."""
    lock = folder / _LOCK
    return lock.is_file() and lock.read_text("utf-8", errors="replace") == _MARK


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time start or stop a cluster in this folder; the kernel drops the lock with its holder."""
    try:
        handle = os.open(folder / _LOCK, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ClusterError(f"{folder / _LOCK} cannot be locked: {error.strerror}.") from None
    with open(handle, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterBusyError(
                f"Another process is starting or stopping the local cluster in {folder}.\n"
                "Wait until it has done so, or use another folder."
            ) from None
        yield


@contextmanager
def free_port(network: Network) -> Iterator[int]:
    """Hold a free port until the API server listens on it, so that nobody else gets it meanwhile."""
    if network.port:
        yield network.port
        return
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        # Only now: a socket that shares could have been given a port that another start holds.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        yield held.getsockname()[1]
