"""Universal Binary JSON (draft 12) as XGBoost writes it: read for a few small values, the arrays of numbers skipped."""

import struct
from collections.abc import Mapping
from mmap import mmap
from typing import Any

_NUMBERS = {"i": "b", "U": "B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}
_CONSTANTS = {"Z": None, "N": None, "T": True, "F": False}
_DEPTH = 64
_MOST_VALUES, _MOST_BYTES = 100_000, 1 << 20
"""Values that are ever kept, and bytes of a text: what is asked of a model are a few words and numbers."""
Keep = Mapping[str, Any] | None
"""Names of an object's values that are kept, with what is kept of those; None keeps all."""
_NOTHING: Keep = {}


class UbjsonError(ValueError):
    """It is no Universal Binary JSON."""


def loads(content: bytes | mmap, keep: Keep = None) -> Any:
    """Return the value, or what is to be kept of it: the rest is passed over, and takes no memory.

    Arrays of one declared type come as None where that is a number. Raises UbjsonError.
    """
    try:
        return _Reader(content).value(keep)
    except (IndexError, struct.error, UnicodeDecodeError, KeyError) as error:
        raise UbjsonError(f"it ends early, or breaks off: {error}") from None


class _Reader:
    def __init__(self, content: bytes | mmap) -> None:
        self._content, self._at, self._depth, self._values = content, 0, 0, 0

    def value(self, keep: Keep, marker: str = "") -> Any:
        marker = marker or self._marker()
        if keep is None:
            self._values += 1
            if self._values > _MOST_VALUES:
                raise UbjsonError(f"it has more than {_MOST_VALUES} values where a few are")
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _NUMBERS:
            return self._number(marker)
        if marker == "C":
            return self._take(1).decode()
        if marker in "SH":
            return self._text(kept=keep is None)
        if marker not in "[{":
            raise UbjsonError(f"byte {self._at - 1} is no marker of a value")
        self._depth += 1
        if self._depth > _DEPTH:
            raise UbjsonError("it is nested too deeply")
        read = self._array(keep) if marker == "[" else self._object(keep)
        self._depth -= 1
        return read

    def _array(self, keep: Keep) -> list[Any] | None:
        kind, count = self._header()
        if kind in _NUMBERS and count is not None:
            self._skip(struct.calcsize(_NUMBERS[kind]) * count)
            return None
        if kind in _CONSTANTS and count is not None:
            return None  # they take no bytes, however many there are said to be
        if count is not None:
            self._plausible(count)
        found = []
        inner = None if keep is None else _NOTHING
        while count != 0:
            marker = kind or self._marker()
            if count is None and marker == "]":
                break
            value = self.value(inner, marker)
            if inner is None:
                found.append(value)
            count = count if count is None else count - 1
        return found

    def _object(self, keep: Keep) -> dict[str, Any]:
        kind, count = self._header()
        found: dict[str, Any] = {}
        if count is not None:
            self._plausible(count)
        while count != 0 and (count is not None or self._peek() != "}"):
            name = self._text()
            inner = None if keep is None else keep.get(name, _NOTHING)
            value = self.value(inner, kind)
            if inner is not _NOTHING:
                found[name] = value
            count = count if count is None else count - 1
        if count is None:
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

    def _text(self, *, kept: bool = True) -> str:
        length = self._length()
        if not kept:
            self._skip(length)
            return ""
        if length > _MOST_BYTES:
            raise UbjsonError(f"a text has {length} bytes")
        return self._take(length).decode()

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
