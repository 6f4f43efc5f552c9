"""Headers of requests: ids, and the headers of one connection (RFC 9110, 7.6.1)."""

import itertools
import os
import re
from collections.abc import Callable, Sequence

_RUN = os.urandom(5).hex().encode()
_COUNT = itertools.count(1)
is_request_id: Callable[[bytes], object] = re.compile(rb"[0-9A-Za-z._-]{1,128}").fullmatch
"""Whether a caller's own id is valid. Any other id is left out of logs and responses."""


def new_request_id() -> bytes:
    """Return an id that is unique among all proxies."""
    return b"%b-%x" % (_RUN, next(_COUNT))


PLAIN = frozenset({b"keep-alive", b"Keep-Alive", b"close"})
"""The usual values of `Connection`, which nominate no header that needs removal."""
LAST_DIGITS = slice(-20, None)
"""The last digits of a length that a parser has accepted. It has at most 64 bits, so only zeros precede them. There can
be thousands of zeros, and Python reads at most 4,300 digits."""


def nominated(value: bytes) -> frozenset[bytes]:
    """Return the names, in lower case, of the headers that a `Connection` header nominates."""
    return frozenset(name.strip().lower() for name in value.split(b","))


def without(lines: Sequence[bytes], names: frozenset[bytes]) -> list[bytes]:
    """Return header lines without those of these names. A line has four parts: name, colon, value, end."""
    kept: list[bytes] = []
    for start in range(0, len(lines), 4):
        if lines[start].lower() not in names:
            kept += lines[start : start + 4]
    return kept
