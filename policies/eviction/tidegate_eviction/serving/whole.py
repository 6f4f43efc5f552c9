"""Files that are always whole."""

import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file; a machine that stops at any instant leaves the old one or the new one. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
