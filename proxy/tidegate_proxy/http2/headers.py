"""HTTP/2 header blocks, compressed by HPACK (RFC 7541): read, understood and remembered, and written.

A peer's blocks are often the same bytes again, so what a block was understood as is kept for as long as the table that
it refers to stays as it is.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from hpack import Decoder

MOST_HEAD_BYTES = 32 * 1024
"""Bytes of a header block, compressed or not."""
_MOST_KEPT = 16
_LONGEST_KEPT = 4096

Fields = list[tuple[bytes, bytes]]
Understood = TypeVar("Understood")


class MalformedHeadersError(Exception):
    """These headers are no request's, or no answer's."""


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header as it is sent, in the one form that needs no table (RFC 7541, 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(value: bytes) -> bytes:
    length = len(value)
    if length < 127:
        return bytes((length,)) + value
    rest = length - 127
    written = bytearray((127,))
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written) + value


class HeaderReader(Generic[Understood]):
    """Decompresses the header blocks of one peer; `understand` makes of their fields what is returned."""

    def __init__(self, understand: Callable[[Fields], Understood]) -> None:
        self._decoder = Decoder(max_header_list_size=2 * MOST_HEAD_BYTES)
        self._understand = understand
        self._kept: dict[bytes, Understood] = {}

    def read(self, block: bytes) -> Understood:
        """Return what a block says; raises MalformedHeadersError, or HPACKError, after which no other can be read."""
        found = self._kept.get(block)
        if found is not None:
            return found
        before = self._state()
        fields = self._decoder.decode(block, raw=True)
        after = self._state()
        if before[0] is not after[0] or before[1:] != after[1:]:
            self._kept.clear()
            kept = False
        else:
            kept = len(block) <= _LONGEST_KEPT
        found = self._understand([(bytes(name), bytes(value)) for name, value in fields])
        if kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[block] = found
        return found

    def _state(self) -> tuple[object, int, int]:
        # An entry that is added comes first in the table, as an object of its own.
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return entries[0] if entries else None, len(entries), table.maxsize
