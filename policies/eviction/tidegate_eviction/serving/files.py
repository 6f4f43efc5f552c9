"""Files that other processes read at any time: each is replaced as a whole. One is the control secret."""

import logging
import os
import re
import secrets
from pathlib import Path

SECRET_MODE = 0o640
"""The server's container reads the secret, too; the pod's file system group may be what the two have in common."""
# What `secrets.token_hex` makes: no character that a shell, an option or a header reads as another.
_SECRET = re.compile(r"[0-9a-f]{64}")
log = logging.getLogger(__name__)


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace a file; a machine that stops at any instant leaves the old or the new one. `mode` holds whatever the
    umask is. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    if mode is not None:
        new.unlink(missing_ok=True)  # left by a process that was killed, with whatever mode
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode or 0o666), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


class KeptFile:
    """A file that a process can do without until it is started again; `loss` says what is lost then."""

    def __init__(self, path: Path, loss: str) -> None:
        self.path = path
        self._loss = loss
        self._said = ""

    def write(self, data: bytes) -> bool:
        """Replace it, and tell whether that could be done; blocks. A failure is logged once."""
        try:
            write_whole(self.path, data)
        except OSError as error:
            if str(error) != self._said:
                self._said = str(error)
                log.warning("%s cannot be written: %s: %s", self.path, self._loss, error)
            return False
        self._said = ""
        return True


def kept_secret(path: Path) -> str:
    """Return the secret in a file, made where there is none. Raises OSError.

    One that is there stays: the control secret is that of a running server.
    """
    try:
        kept = path.read_text("ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        kept = ""
    if _SECRET.fullmatch(kept):
        return kept
    made = secrets.token_hex(32)
    write_whole(path, made.encode(), SECRET_MODE)
    return made
