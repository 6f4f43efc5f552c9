"""Universal Binary JSON (draft 12) as XGBoost writes it: read for a few small values, the arrays of numbers skipped."""

import struct
from mmap import mmap
from typing import Any

_NUMBERS = {"i": "b", "U": "B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}
_CONSTANTS = {"Z": None, "N": None, "T": True, "F": False}
_DEPTH = 64


class UbjsonError(ValueError):
    """It is no Universal Binary JSON."""


def loads(content: bytes | mmap) -> Any:
    """Return the value; arrays of one declared type come as None where that is a number. Raises UbjsonError."""
    try:
        return _Reader(content).value()
    except (IndexError, struct.error, UnicodeDecodeError, KeyError) as error:
        raise UbjsonError(f"it ends early, or breaks off: {error}") from None


class _Reader:
    def __init__(self, content: bytes | mmap) -> None:
        self._content, self._at, self._depth = content, 0, 0

    def value(self, marker: str = "") -> Any:
        marker = marker or self._marker()
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _NUMBERS:
            return self._number(marker)
        if marker == "C":
            return self._take(1).decode()
        if marker in "SH":
            return self._text()
        if marker not in "[{":
            raise UbjsonError(f"byte {self._at - 1} is no marker of a value")
        self._depth += 1
        if self._depth > _DEPTH:
            raise UbjsonError("it is nested too deeply")
        read = self._array() if marker == "[" else self._object()
        self._depth -= 1
        return read

    def _array(self) -> list[Any] | None:
        kind, count = self._header()
        if kind in _NUMBERS and count is not None:
            self._skip(struct.calcsize(_NUMBERS[kind]) * count)
            return None
        if kind in _CONSTANTS and count is not None:
            return None  # they take no bytes, however many there are said to be
        if count is not None:
            self._plausible(count)
            return [self.value(kind) for _ in range(count)]
        found = []
        while (marker := self._marker()) != "]":
            found.append(self.value(marker))
        return found

    def _object(self) -> dict[str, Any]:
        kind, count = self._header()
        found: dict[str, Any] = {}
        if count is not None:
            self._plausible(count)
            for _ in range(count):
                name = self._text()
                found[name] = self.value(kind)
            return found
        while self._peek() != "}":
            name = self._text()
            found[name] = self.value()
        self._at += 1
        return found

    def _header(self) -> tuple[str, int | None]:
        """Read the optional `$` type and `#` count."""
        kind = ""
        if self._peek() == "$":
            self._at += 1
            kind = self._marker()
        if self._peek() != "#":
            if kind:
                raise UbjsonError("a type without a count")
            return "", None
        self._at += 1
        return kind, self._length()

    def _plausible(self, count: int) -> None:
        if count > len(self._content) - self._at:
            raise UbjsonError("it has fewer values than it says")

    def _length(self) -> int:
        marker = self._marker()
        count = self._number(marker) if marker in "iUIlL" else -1
        if count < 0:
            raise UbjsonError("a length is no number")
        return int(count)

    def _text(self) -> str:
        return self._take(self._length()).decode()

    def _number(self, marker: str) -> Any:
        form = _NUMBERS[marker]
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _marker(self) -> str:
        while (marker := self._take(1).decode("latin-1")) == "N":  # means nothing
            pass
        return marker

    def _peek(self) -> str:
        return chr(self._content[self._at])

    def _skip(self, count: int) -> None:
        """Go on without a copy of what is left out, which may be nearly all of a large file."""
        if count > len(self._content) - self._at:
            raise UbjsonError("it ends early")
        self._at += count

    def _take(self, count: int) -> bytes:
        taken = self._content[self._at : self._at + count]
        if len(taken) < count:
            raise UbjsonError("it ends early")
        self._at += count
        return taken
