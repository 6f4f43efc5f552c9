"""Header blocks with values too long to keep, cut short as they come, so that the others on the connection go on.

A server may say at length what is wrong with one call. A block cannot be passed over: the table that all later ones
refer to changes with it (RFC 7541, 2.3.2). But what is longer than that table never stands in it: of such a name or
value it is enough to keep as much as empties the table likewise.
"""

LONGEST = 16_384
"""Bytes of a name or value that is kept whole. Of a longer one no encoding is so short that it fits in the table."""
KEPT_BYTES = 4096  # Of a longer one. The table has as many bytes, and an entry takes 32 more.
_INDEXED, _ADDED, _RESIZED, _NOT_ADDED = 7, 6, 5, 4  # Bits of the number that each form of a field begins with.


class BlockCutter:
    """Takes one block in parts, and returns what is kept of each."""

    def __init__(self) -> None:
        self._rest = b""
        self._strings = 0  # Names and values that the current field still has.
        self._keep = 0  # Bytes that are still kept of the current one; then as many as `_skip` are left out.
        self._skip = 0

    def feed(self, part: bytes) -> bytes:
        """Return what is kept of the next part."""
        data, kept, at = self._rest + part, bytearray(), 0
        while at < len(data):
            if self._keep:
                piece = data[at : at + self._keep]
                self._keep -= len(piece)
                kept += piece
                at += len(piece)
            elif self._skip:
                left_out = min(self._skip, len(data) - at)
                self._skip -= left_out
                at += left_out
            else:
                form = _form(data[at])
                found = _number(data, at, _INDEXED if self._strings else form)
                if found is None:
                    break
                number, end = found
                if self._strings:
                    self._strings -= 1
                    kept += self._begin_string(number, data[at:end])
                else:
                    kept += data[at:end]
                    if form in (_ADDED, _NOT_ADDED):
                        self._strings = 1 if number else 2  # its name may have a number in the table
                at = end
        self._rest = data[at:]
        return bytes(kept)

    def _begin_string(self, length: int, said: bytes) -> bytes:
        if length <= LONGEST:
            self._keep = length
            return said
        begin = b"\x7f" + bytes(((KEPT_BYTES - 127) & 0x7F | 0x80, (KEPT_BYTES - 127) >> 7))
        if said[0] & 0x80:  # Huffman's code cannot be cut anywhere
            self._skip = length
            return begin + b"?" * KEPT_BYTES
        self._keep, self._skip = KEPT_BYTES, length - KEPT_BYTES
        return begin


def _form(first: int) -> int:
    """Return the form of a field, by its first byte (RFC 7541, 6)."""
    return next((bits for bits in (_INDEXED, _ADDED, _RESIZED) if first >> bits), _NOT_ADDED)


def _number(data: bytes, at: int, bits: int) -> tuple[int, int] | None:
    """Return a number that begins with so many bits of a byte, and where it ends (RFC 7541, 5.1).

    None where that is in a later part.
    """
    most = (1 << bits) - 1
    number = data[at] & most
    if number < most:
        return number, at + 1
    for shift, byte in enumerate(data[at + 1 : at + 11]):
        number += (byte & 0x7F) << 7 * shift
        if not byte & 0x80:
            return number, at + shift + 2
    return None
