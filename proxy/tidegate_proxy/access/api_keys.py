"""API keys: random, so a plain hash is enough to recognise them.

A key has more than 256 bits from the system's source of randomness. No one can find one by trying, however fast SHA-256
is. The slow hashes that passwords need (bcrypt, Argon2) would only add cost.
"""

import hashlib
import re
import secrets
import string
from collections.abc import Mapping
from pathlib import Path

from ..problems import TableError

PREFIX = "tgk_"  # Secret scanners recognise a key by it: `tgk_[0-9A-Za-z]{49}`.
HASH = "sha256:"
MOST_FILE_BYTES = 64 * 1024
MOST_PRINCIPALS = 100_000
_SIGNS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SIZE = 49
_LINE = re.compile(rf"{HASH}[0-9a-f]{{64}}")


def new_key() -> str:
    """Return a new random key."""
    return PREFIX + "".join(secrets.choice(_SIGNS) for _ in range(_SIZE))


def hash_line(key: str) -> str:
    """Return the line for a key in its principal's file."""
    return HASH + hashlib.sha256(key.encode()).hexdigest()


ApiKeys = Mapping[str, str]
"""The principal of each key, by the key's `hash_line`. The time of a look-up can leak hashes at most, never keys."""


def read_api_keys(folder: Path) -> ApiKeys:
    """Read a mounted secret: one file per principal, with a hash per line. Several lines allow a change of keys without
    a gap. `#` begins a comment. Names that begin with a dot belong to Kubernetes (`..data`)."""
    principals: dict[str, str] = {}
    try:
        files = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file())
        if len(files) > MOST_PRINCIPALS:
            raise TableError(f"{folder} has more than {MOST_PRINCIPALS} files.")
        for path in files:
            with path.open("rb") as file:
                text = file.read(MOST_FILE_BYTES + 1)
            if len(text) > MOST_FILE_BYTES:
                raise TableError(f"{path} has more than {MOST_FILE_BYTES} bytes.")
            for line in _hash_lines(path, text):
                if principals.setdefault(line, path.name) != path.name:
                    raise TableError(f"{path} has a key of {principals[line]} too: give each principal its own key.")
    except OSError as error:
        raise TableError(f"{folder} cannot be read: {error.strerror}.") from None
    return principals


def _hash_lines(path: Path, text: bytes) -> list[str]:
    found = []
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        if not _LINE.fullmatch(entry):
            what = "a key itself: replace it, because it is no longer secret" if PREFIX in entry else "not a hash"
            raise TableError(f"{path}, line {number}: {what} (a line is `{HASH}` and 64 hexadecimal digits).")
        found.append(entry)
    return found
