"""Puts a file or a folder in another's place as a whole: one folder for one run at a time."""

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

from stacks.command import CommandError, Outcome, reason
from stacks.problems import escaped

MARKER = ".tidegate.json"
"""Its presence in a folder says that the folder is ours."""
_AT_FDCWD = -100
_EXCHANGE = 2


def beside(out: Path, what: str) -> Path:
    """Return the path of a helper file or folder in the same folder as `out`, and so in the same file system."""
    return out.parent / f".{out.name}.tidegate-{what}"


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
        raise CommandError(f"{out} cannot be written: {reason(error)}") from None
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
    for path in (beside(out, "old"), beside(out, "new")):
        if os.path.lexists(path) and not is_ours(path):
            raise CommandError(
                f"{escaped(str(path))} was not made by Tidegate, and stands where a helper folder must. Nothing was\n"
                "changed. Move it away, or name another folder with OUT=<folder>."
            )
    old = beside(out, "old")
    if not old.exists():
        return
    if out.exists():
        remove(old)
    else:
        old.rename(out)


def is_ours(folder: Path) -> bool:
    """Say whether this is a helper folder of ours: one with our marker, or one that is still or again empty."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    names = os.listdir(folder)
    return not names or MARKER in names


def remove(folder: Path) -> None:
    """Remove a helper folder, as far as that can be done; the marker goes last, so that the rest is still ours."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MARKER:
                path.unlink()
        if os.listdir(folder) == [MARKER]:
            (folder / MARKER).unlink()
        folder.rmdir()


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
        remove(left)


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
