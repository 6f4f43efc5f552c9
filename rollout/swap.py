"""Puts one folder in another's place, for one run at a time."""

import ctypes
import fcntl
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import Outcome, RolloutError, reason

_AT_FDCWD = -100
_EXCHANGE = 2


def beside(out: Path, what: str) -> Path:
    """Return the path of a helper file or folder in the same folder as `out`, and so in the same file system."""
    return out.parent / f".{out.name}.{what}"


def real(out: Path) -> Path:
    """Return where a folder really is, so that a link to it stays one; a path that is none is left as it was given."""
    return out if out.name not in ("", "..") and not out.is_symlink() else Path(os.path.realpath(out))


@contextmanager
def locked(out: Path, waiting: str = "") -> Iterator[None]:
    """Hold the lock of a folder; `waiting` is said when another run holds it. Puts right what a killed run left."""
    path = beside(out, "lock")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(path, waiting)
    except OSError as error:
        raise RolloutError(f"{out} cannot be written: {reason(error)}") from None
    try:
        _recover(out)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path, waiting: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    print(waiting, file=sys.stderr, flush=True)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Who held it before has removed the file, and then a third run may have made a new one.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        waiting = ""


def _recover(out: Path) -> None:
    """Undo a replacement in two steps that was killed between them."""
    old = beside(out, "old")
    if not old.exists():
        return
    if out.exists():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.rename(out)


def swap(staging: Path, out: Path, outcome: Outcome) -> None:
    """Put the folder `staging` in the place of `out`, in one step where the system has one, and drop what was there."""
    with _uninterrupted():
        if not out.exists() or not any(out.iterdir()):
            staging.rename(out)
        elif not exchange(staging, out):
            old = beside(out, "old")
            out.rename(old)
            try:
                staging.rename(out)
            except OSError:
                old.rename(out)
                raise
        outcome.text = f"{out} has the new rendering"
    for left in (staging, beside(out, "old")):
        shutil.rmtree(left, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return False where the system or the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    here, there = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            return bool(libc.renamex_np(here, there, _EXCHANGE) == 0)
        return bool(libc.renameat2(_AT_FDCWD, here, _AT_FDCWD, there, _EXCHANGE) == 0)
    except AttributeError:
        return False


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let no Ctrl-C come between two steps that belong together."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
