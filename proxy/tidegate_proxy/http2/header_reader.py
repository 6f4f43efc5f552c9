"""Reads header blocks, which HPACK compresses (RFC 7541), with tables of the library `hpack`: its reader is slower."""

from collections.abc import Callable
from itertools import chain
from typing import Generic

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from .frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, Fields, Http2Error, Understood

_MOST_TABLE = HeaderTable.DEFAULT_SIZE  # Bytes of a dynamic table: this end announces no other limit.
_MOST_RESIZES = 2  # Table size updates at the start of a block (RFC 7541, 4.2).
_MOST_KEPT = 8192  # Bytes of cached blocks and their decoded fields.
_LONGEST_KEPT = 4608  # The same for one block.
_KEPT_BYTES = 512  # Overhead of a cached block.
_LONGEST_NUMBER = 5  # Bytes after the first one.


class HeaderReader(Generic[Understood]):
    """Reads the header blocks of one peer, and converts their fields with `parse_fields`. `most_bytes` limits the
    fields of a block: names, values, and 32 bytes for each field (RFC 9113, 6.5.2).

    Peers often repeat a block byte by byte, so results are cached until the table that they refer to changes.
    """

    def __init__(self, parse_fields: Callable[[Fields], Understood], most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._parse_fields = parse_fields
        self._table = HeaderTable()
        self._kept: dict[bytes, Understood] = {}
        self._kept_bytes = 0
        self.bytes_read = 0  # Of all blocks that were not cached.

    def read(self, block: bytes) -> Understood:
        """Return a block's converted fields. Raises MalformedHeadersError. Also raises Http2Error, after which the
        reader cannot be used."""
        found = self._kept.get(block)
        if found is not None:
            return found
        self.bytes_read += len(block)
        try:
            fields, is_same = self._decode(block)
        except (IndexError, HPACKDecodingError):
            raise Http2Error(COMPRESSION_ERROR, "the headers cannot be decompressed") from None
        size = len(block) + sum(map(len, chain(*fields))) + _KEPT_BYTES if is_same else 0
        is_kept = 0 < size <= _LONGEST_KEPT
        if not is_same or (is_kept and self._kept_bytes + size > _MOST_KEPT):
            self._kept.clear()
            self._kept_bytes = 0
        found = self._parse_fields(fields)
        if is_kept:
            self._kept_bytes += size
            self._kept[block] = found
        return found

    def _decode(self, block: bytes) -> tuple[Fields, bool]:
        """Return a block's fields, and whether the table is the same as before."""
        fields: Fields = []
        at, left, resizes, is_same = 0, self._most_bytes, 0, True
        while at < len(block):
            first = block[at]
            if first & 0x80:  # an entry (6.1)
                index, at = _number(block, at, 0x7F)
                field = self._table.get_by_index(index)
            elif first & 0xE0 == 0x20:  # a new size of the table (6.3)
                resizes += 1
                size, at = _number(block, at, 0x1F)
                if fields or resizes > _MOST_RESIZES or size > _MOST_TABLE:
                    raise HPACKDecodingError
                self._table.maxsize, is_same = size, False
                continue
            else:  # a value with or without a new entry (6.2)
                index, at = _number(block, at, 0x3F if first & 0x40 else 0x0F)
                if index:
                    name = self._table.get_by_index(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                field = name, value
                if first & 0x40:
                    self._table.add(name, value)
                    is_same = False
            left -= len(field[0]) + len(field[1]) + 32
            if left < 0:
                raise too_long_headers(self._most_bytes)
            fields.append(field)
        return fields, is_same


def too_long_headers(most: int) -> Http2Error:
    """Return the error for a peer whose headers exceed `most` bytes."""
    return Http2Error(ENHANCE_YOUR_CALM, f"the headers are too long: the limit is {most} bytes, decompressed")


def _number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return the number whose first byte has these bits, and the position after it (5.1)."""
    number = block[at] & mask
    if number < mask:
        return number, at + 1
    for place in range(_LONGEST_NUMBER):
        byte = block[at + 1 + place]
        number += (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + 2 + place
    raise HPACKDecodingError


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """Return the string at a position, and the position after it (5.2)."""
    is_huffman = block[at] & 0x80
    length, at = _number(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise HPACKDecodingError
    return (decode_huffman(block[at:end]) if is_huffman else block[at:end]), end
