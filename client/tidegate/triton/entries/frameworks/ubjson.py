"""Universal Binary JSON (draft 12) as XGBoost writes it: read for a few small values, all else passed over."""

import struct
from collections.abc import Mapping
from mmap import mmap
from typing import Any

_FORMATS = {"i": "b", "U": "B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}
_CONSTANTS = {"Z": None, "T": True, "F": False}
_SIZES = {kind: struct.calcsize(form) for kind, form in _FORMATS.items()} | dict.fromkeys(_CONSTANTS, 0)
_DEPTH = 64
_MOST_BYTES = 1 << 20
"""Bytes of a text: what is asked of a model are a few words and numbers."""
Wanted = Mapping[str, Any]
"""Names of an object's values: None asks for a number, a text or a constant, another mapping for those within."""
_NOTHING: Wanted = {}


class UbjsonError(ValueError):
    """It is no Universal Binary JSON."""


def read(content: bytes | mmap, wanted: Wanted) -> Any:
    """Return what is wanted of an object, as far as it has that. The rest takes no memory. Raises UbjsonError."""
    try:
        return _Reader(content).value(wanted)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise UbjsonError(f"it ends early, or breaks off: {error}") from None


class _Reader:
    def __init__(self, content: bytes | mmap) -> None:
        self._content, self._at, self._depth = content, 0, 0

    def value(self, wanted: Wanted | None, marker: str = "") -> Any:
        """Go past one value; return it, or what is wanted of it."""
        marker = marker or chr(self._take(1)[0])
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _FORMATS:
            return struct.unpack(_FORMATS[marker], self._take(_SIZES[marker]))[0]
        if marker == "C":
            return self._take(1).decode()
        if marker in "SH":
            return self._text() if wanted is None else self._skip(self._length())
        if marker not in "[{":
            raise UbjsonError(f"byte {self._at - 1} is no marker of a value")
        self._depth += 1
        if self._depth > _DEPTH:
            raise UbjsonError("it is nested too deeply")
        found = self._container("]" if marker == "[" else "}", wanted or _NOTHING)
        self._depth -= 1
        return found

    def _container(self, closing: str, wanted: Wanted) -> dict[str, Any]:
        """Go past an array or an object; return what is wanted of an object."""
        kind, count = self._header()
        found: dict[str, Any] = {}
        if closing == "]" and count is not None and kind in _SIZES:
            self._skip(count * _SIZES[kind])
            return found
        if count is not None and count > len(self._content) - self._at:
            raise UbjsonError("it has fewer values than it says")
        while count != 0 and not (count is None and self._closes(closing)):
            name = self._text() if closing == "}" else ""
            value = self.value(wanted.get(name, _NOTHING), kind)
            if name in wanted:
                found[name] = value
            count = None if count is None else count - 1
        return found

    def _header(self) -> tuple[str, int | None]:
        """Read the optional `$` type and `#` count."""
        kind = ""
        if self._content[self._at] == ord("$"):
            kind = chr(self._take(2)[1])
        if self._content[self._at] != ord("#"):
            if kind:
                raise UbjsonError("a type without a count")
            return "", None
        self._at += 1
        return kind, self._length()

    def _closes(self, closing: str) -> bool:
        while self._content[self._at] == ord("N"):  # means nothing
            self._at += 1
        if self._content[self._at] != ord(closing):
            return False
        self._at += 1
        return True

    def _length(self) -> int:
        marker = chr(self._take(1)[0])
        count = self.value(_NOTHING, marker) if marker in "iUIlL" else -1
        if count < 0:
            raise UbjsonError("a length is no number")
        return int(count)

    def _text(self) -> str:
        length = self._length()
        if length > _MOST_BYTES:
            raise UbjsonError(f"a text has {length} bytes")
        return self._take(length).decode()

    def _skip(self, count: int) -> None:
        """Go on without a copy of what is left out, which may be nearly all of a large file."""
        if count > len(self._content) - self._at:
            raise UbjsonError("it ends early")
        self._at += count

    def _take(self, count: int) -> bytes:
        start = self._at
        self._skip(count)
        return self._content[start : self._at]
