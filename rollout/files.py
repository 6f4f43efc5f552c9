"""Files that other processes may read meanwhile: written whole or not at all."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, text: str | bytes) -> None:
    """Write a file; a reader finds the old text or the new one, also after a crash. A new file is for everybody.

    A link stays one: what it leads to is written. Characters that are no text are written as `?`.
    """
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
    """Have the system write down which files a folder has."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
