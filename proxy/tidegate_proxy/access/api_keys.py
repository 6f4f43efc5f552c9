"""API keys: random, so that a plain hash is enough to know them again.

A key has 256 bits from the system's source of randomness. Nobody finds it by trying, however fast SHA-256 is, so the
slow hashes that passwords need (bcrypt, Argon2) would cost much and add nothing.
"""

import binascii
import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Mapping
from pathlib import Path

from ..problems import TableError

PREFIX = "tgk_"
"""What secret scanners know a key by: `tgk_[0-9A-Za-z]{49}`."""
HASH = "sha256:"
MOST_FILE_BYTES = 64 * 1024
MOST_PRINCIPALS = 100_000
_SIGNS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM_SIGNS = 43  # 62 ** 43 > 2 ** 256
_CHECK_SIGNS = 6  # 62 ** 6 > 2 ** 32
_KEY = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{_RANDOM_SIGNS}}})([0-9A-Za-z]{{{_CHECK_SIGNS}}})")
_LINE = re.compile(rf"{HASH}([0-9a-f]{{64}})")
_START = 8


def new_key() -> str:
    """Return a new key: prefix, 256 random bits and a checksum."""
    random = _text(secrets.randbits(256), _RANDOM_SIGNS)
    return PREFIX + random + _check(random)


def hash_line(key: str) -> str:
    """Return the line that stands for a key in its principal's file."""
    return HASH + hashlib.sha256(key.encode()).hexdigest()


def is_whole(key: str) -> bool:
    """Tell whether a text is a key without a slip of the pen; whether it is anybody's is another question."""
    match = _KEY.fullmatch(key)
    return match is not None and _check(match[1]) == match[2]


def _check(random: str) -> str:
    return _text(binascii.crc32(random.encode()), _CHECK_SIGNS)


def _text(number: int, length: int) -> str:
    signs = []
    for _ in range(length):
        number, sign = divmod(number, len(_SIGNS))
        signs.append(_SIGNS[sign])
    return "".join(reversed(signs))


class ApiKeys:
    """Whose keys there are: SHA-256 of each, and its principal."""

    def __init__(self, principals: Mapping[bytes, str] | None = None) -> None:
        self.principals = dict(principals or {})
        self._by_start: dict[bytes, list[tuple[bytes, str]]] = {}
        for digest, principal in self.principals.items():
            self._by_start.setdefault(digest[:_START], []).append((digest, principal))

    def __len__(self) -> int:
        return len(self.principals)

    def principal_of(self, key: str) -> str | None:
        """Return whose key it is. How long that takes tells nothing about other keys."""
        digest = hashlib.sha256(key.encode()).digest()
        found = None
        for known, principal in self._by_start.get(digest[:_START], ()):
            if hmac.compare_digest(known, digest):
                found = principal
        return found


def read_api_keys(folder: Path) -> ApiKeys:
    """Read a mounted secret: a file for each principal, named after it, with a hash a line; `#` begins a remark.

    Several lines allow a change of keys without a gap. Entries that begin with a dot are Kubernetes' own (`..data`).
    """
    principals: dict[bytes, str] = {}
    try:
        files = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file())
        if len(files) > MOST_PRINCIPALS:
            raise TableError(f"{folder} has more than {MOST_PRINCIPALS} files.")
        for path in files:
            with path.open("rb") as file:
                text = file.read(MOST_FILE_BYTES + 1)
            if len(text) > MOST_FILE_BYTES:
                raise TableError(f"{path} has more than {MOST_FILE_BYTES} bytes.")
            for digest in _digests(path, text):
                if principals.setdefault(digest, path.name) != path.name:
                    raise TableError(f"{path} has a key that is {principals[digest]}'s too: give each its own.")
    except OSError as error:
        raise TableError(f"{folder} cannot be read: {error.strerror}.") from None
    return ApiKeys(principals)


def _digests(path: Path, text: bytes) -> list[bytes]:
    digests = []
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        match = _LINE.fullmatch(said)
        if match is None:
            what = "a key itself: make a new one, for this one is no longer secret" if PREFIX in said else "no hash"
            raise TableError(f"{path}, line {number}: {what} (a line is `{HASH}` and 64 hexadecimal digits).")
        digests.append(bytes.fromhex(match[1]))
    return digests
