"""Headers of any message: the ids of requests, and those of one connection alone (RFC 9110, 7.6.1)."""

import itertools
import os
import re
from collections.abc import Callable, Sequence

_RUN = os.urandom(5).hex().encode()
_COUNT = itertools.count(1)
is_request_id: Callable[[bytes], object] = re.compile(rb"[0-9A-Za-z._-]{1,128}").fullmatch
"""Whether a caller's own id can be used: anything else is left out of logs and answers."""


def new_request_id() -> bytes:
    """Return an id that no other request of any proxy has."""
    return b"%b-%x" % (_RUN, next(_COUNT))


PLAIN = frozenset({b"keep-alive", b"Keep-Alive", b"close"})
"""What nearly every `Connection` says; it nominates no header that is not known anyway."""


DIGITS = 20
"""Last digits of a length that its parser has taken: it has at most 64 bits, so only zeros stand before them. They can
be thousands, and Python reads 4,300 digits at most."""


def nominated(value: bytes) -> frozenset[bytes]:
    """Return the names, in small letters, of the headers that a `Connection` nominates."""
    return frozenset(name.strip().lower() for name in value.split(b","))


def without(lines: Sequence[bytes], names: frozenset[bytes]) -> list[bytes]:
    """Return header lines without those of these names; a line is four parts: name, colon, value, end."""
    kept: list[bytes] = []
    for start in range(0, len(lines), 4):
        if lines[start].lower() not in names:
            kept += lines[start : start + 4]
    return kept
