"""The folder of a local cluster: private, one cluster at a time, and cleaned."""

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .control_plane import ClusterBusyError, ClusterError, Network

STATE = "cluster.json"
"""What another process needs to find the cluster again."""
PULUMI = "pulumi"
"""Folder of what Pulumi knows about the cluster; it is nothing without it."""
# What a cluster makes in its folder; whatever else lies there is left alone.
_LOCK = ".lock"
_MARK = "A local cluster of Tidegate made this folder.\n"
_MADE = ("etcd", "pki", "tokens", "kubeconfigs", "logs", "kubectl-cache", PULUMI)
_MADE_FILES = (STATE, "kubeconfig", "tokens.csv", "stages.yaml", "etcd.sock", "peer:0")


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
        theirs = [name for name in (*_MADE, *_MADE_FILES) if os.path.lexists(folder / name)]
        known = made(folder)
        strange = [name for name in theirs if not known or not _as_made(folder / name)]
        strange += [] if _lock_is_ours(folder / _LOCK) else [_LOCK]
    except OSError as error:
        raise ClusterError(f"A local cluster cannot live in {folder}: {error.strerror}.") from None
    if strange:
        raise ClusterError(
            f"No local cluster made {', '.join(strange)} in {folder}: nothing was removed there.\n"
            "Move that away, or let TIDEGATE_CACHE name another folder."
        )


def mark(folder: Path) -> None:
    """Write down that a cluster lives in this folder, which must be locked."""
    if _text(folder / _LOCK) != _MARK:
        (folder / _LOCK).write_text(_MARK, "utf-8")


def clean(folder: Path, *, logs: bool = True) -> None:
    """Remove what a cluster made in its folder, with or without its logs; no link is followed."""
    for name in _MADE:
        if (logs or name != "logs") and _as_made(folder / name):
            shutil.rmtree(folder / name, ignore_errors=True)
    for name in _MADE_FILES:
        if _as_made(folder / name):
            (folder / name).unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Remove what a cluster made, and its folder when nothing else lies there."""
    clean(folder)
    (folder / _LOCK).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def made(folder: Path) -> bool:
    """Tell whether a cluster made what lies in this folder under the names of a cluster's."""
    return _text(folder / _LOCK) == _MARK


def _lock_is_ours(lock: Path) -> bool:
    return not os.path.lexists(lock) or (lock.is_file() and not lock.is_symlink() and _text(lock) in ("", _MARK))


def _text(file: Path) -> str:
    """Return what a file says, and nothing for what cannot be read or is a link."""
    try:
        return "" if file.is_symlink() or not file.is_file() else file.read_text("utf-8")
    except ValueError:
        return "?"
    except OSError:
        return ""


def _as_made(path: Path) -> bool:
    """Tell whether something can be what a cluster made: a folder or a file where it makes one, and never a link."""
    if path.is_symlink():
        return False
    return path.is_dir() if path.name in _MADE else not path.is_dir()


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
