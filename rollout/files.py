"""Writes files that other processes may read meanwhile: completely or not at all."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, text: str | bytes) -> None:
    """Write a file. A reader finds the old text or the new one, even after a crash. Everyone can read a new file. A
    link stays, and its target is written. Characters that UTF-8 cannot encode become `?`."""
    path = Path(os.path.realpath(path))
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "replace") if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a directory's list of files to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
