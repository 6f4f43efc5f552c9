"""Headers of one connection alone: those that its header `Connection` nominates (RFC 9110, 7.6.1)."""

from collections.abc import Sequence

PLAIN = frozenset({b"keep-alive", b"Keep-Alive", b"close"})
"""What nearly every `Connection` says; it nominates no header that is not known anyway."""


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
