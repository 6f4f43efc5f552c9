"""The folder of a local cluster: private, one cluster at a time, and cleaned."""

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .control_plane import ClusterBusyError, ClusterError, Network

STATE = "cluster.json"  # What another process needs to find the cluster again.
# What a cluster makes in its folder; whatever else lies there is left alone.
_LOCK = ".lock"
_MARK = "A local cluster of Tidegate made this folder.\n"
_MADE = ("etcd", "pki", "tokens", "kubeconfigs", "logs", "kubectl-cache", STATE,
         "kubeconfig", "tokens.csv", "stages.yaml", "etcd.sock", "peer:0")  # fmt: skip


def private_folder(folder: Path) -> Path:
    """Return the folder's real path, made when it is not there; its contents are for its owner alone.

    Raises ClusterError, and changes nothing, where somebody's files have the names of those that a cluster makes.
    """
    refuse_others(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ClusterError(f"A local cluster cannot live in {folder}: {error.strerror}.") from None
    return folder.resolve()


def refuse_others(folder: Path) -> None:
    """Raise ClusterError where a folder is a link, or somebody's things there have the names of a cluster's."""
    try:
        if folder.is_symlink():
            raise ClusterError(
                f"{folder} is a symbolic link to {os.readlink(folder)}, and no local cluster lives behind a link: "
                "nothing was removed there.\nRemove the link, or let TIDEGATE_CACHE name another folder."
            )
        theirs = [name for name in _MADE if os.path.lexists(folder / name)]
        lock = folder / _LOCK
        if lock.is_symlink() or (lock.exists() and lock.stat().st_size):  # a killed start may have left it empty
            theirs.append(_LOCK)
        if theirs and not made(folder):
            raise ClusterError(
                f"No local cluster made {', '.join(theirs)} in {folder}: nothing was removed there.\n"
                "Move that away, or let TIDEGATE_CACHE name another folder."
            )
    except OSError as error:
        raise ClusterError(f"A local cluster cannot live in {folder}: {error.strerror}.") from None


def mark(folder: Path) -> None:
    """Write down that a cluster lives in this folder, which must be locked."""
    (folder / _LOCK).write_text(_MARK, "utf-8")


def clean(folder: Path, *, logs: bool = True) -> None:
    """Remove what a cluster made in its folder, with or without its logs; a link goes, and is not followed."""
    for path in (folder / name for name in _MADE if logs or name != "logs"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Remove what a cluster made, and its folder when nothing else lies there."""
    clean(folder)
    (folder / _LOCK).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def made(folder: Path) -> bool:
    """Tell whether a cluster made this folder."""
    lock = folder / _LOCK
    return lock.is_file() and not lock.is_symlink() and lock.read_bytes() == _MARK.encode()


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
