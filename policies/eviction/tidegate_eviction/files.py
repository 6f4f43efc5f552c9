"""Files that other processes read at any time: each is replaced atomically. One is the control secret."""

import logging
import os
import re
import secrets
from pathlib import Path

SECRET_MODE = 0o640
"""The server's container reads the secret, too. The two may only share the pod's file system group."""
# The output of `secrets.token_hex`, which needs no quoting in a shell, an option or a header.
_SECRET = re.compile(r"[0-9a-f]{64}")
log = logging.getLogger(__name__)


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace a file atomically, even if the machine stops. `mode` is independent of the umask. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    if mode is not None:
        new.unlink(missing_ok=True)  # Left by a killed process, with any mode.
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode or 0o666), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


class KeptFile:
    """A file that a process only needs after a restart. `loss` is the consequence of its absence, for the log."""

    def __init__(self, path: Path, loss: str) -> None:
        self.path = path
        self._loss = loss
        self._logged = ""

    def write(self, data: bytes) -> bool:
        """Replace the file, and return whether that succeeded. Blocks. A failure is logged once."""
        try:
            write_whole(self.path, data)
        except OSError as error:
            if str(error) != self._logged:
                self._logged = str(error)
                log.warning("%s cannot be written: %s: %s", self.path, self._loss, error)
            return False
        self._logged = ""
        return True


def kept_secret(path: Path) -> str:
    """Return a file's secret, created only if there is none: a running server uses it. Raises OSError."""
    try:
        kept = path.read_text("ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        kept = ""
    if _SECRET.fullmatch(kept):
        return kept
    made = secrets.token_hex(32)
    write_whole(path, made.encode(), SECRET_MODE)
    return made
