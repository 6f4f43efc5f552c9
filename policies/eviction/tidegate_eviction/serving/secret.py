"""The key to Triton's model control: made when the pod starts, never shown, known to these two containers only."""

import os
import re
import secrets
from pathlib import Path

MODE = 0o640
"""Triton's container reads it, too; the pod's file system group may be what the two have in common."""
BYTES = 32
# What `secrets.token_hex` makes: no character that a shell, an option or a header reads as another.
_WHOLE = re.compile(r"[0-9a-f]{64}")


def control_secret(path: Path) -> str:
    """Return the secret, made first where there is none; the one that is there stays, for Triton was started with it.

    Whoever reads the file finds the whole secret or no file. Raises OSError where the folder cannot be written.
    """
    try:
        kept = path.read_text("ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        kept = ""
    if _WHOLE.fullmatch(kept):
        return kept
    made = secrets.token_hex(BYTES)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), MODE)  # whatever the umask
        file.write(made)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    return made
