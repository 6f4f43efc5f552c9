"""The folder of a local cluster: private, one cluster at a time, and cleaned."""

import fcntl
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .control_plane import Network
from .errors import ClusterError

STATE = "cluster.json"
"""What another process needs to find the cluster again."""
# What a cluster makes in its folder; whatever else lies there is left alone.
_MADE = ("etcd", "pki", "tokens", "kubeconfigs", "logs", "kubectl-cache")
_MADE_FILES = (STATE, "kubeconfig", "tokens.csv", "stages.yaml", "etcd.sock", "peer:0")


def private_folder(folder: Path) -> Path:
    """Return the folder's real path, made when it is not there; its contents are for its owner alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ClusterError(f"A local cluster cannot live in {folder}: {error.strerror}.") from None
    return folder.resolve()


def clean(folder: Path, *, logs: bool = True) -> None:
    """Remove what a cluster made in its folder, with or without its logs."""
    for name in _MADE:
        if logs or name != "logs":
            shutil.rmtree(folder / name, ignore_errors=True)
    for name in _MADE_FILES:
        (folder / name).unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time start or stop a cluster in this folder; the kernel drops the lock with its holder."""
    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(
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
