"""Errors among the messages of a stream (`ModelStreamInferResponse`), as callers may have them; others just pass."""

from collections.abc import Callable

from ..told_errors import MOST_ERROR, unpacked
from .protobuf import MalformedError, field_at, framed, text

_PREFIX = 5  # Bytes before each message: whether it is compressed, and its length.
_ERROR_MESSAGE = 1  # Number of its field.
_TELLS_ERROR = _ERROR_MESSAGE << 3 | 2


class StreamErrors:
    """Makes error messages plain; `plain` returns the text as callers may have it."""

    def __init__(self, plain: Callable[[str], str]) -> None:
        self._plain = plain
        self._passing = 0  # Bytes of the current message that go on as they come.
        self._held = b""  # The beginning of a message that may tell an error.
        self._dropping = 0  # Bytes of one that is too long, which do not.

    def feed(self, data: bytes) -> bytes:
        """Return what can go on, now that this has come."""
        if len(data) <= self._passing and not self._held:
            self._passing -= len(data)
            return data
        said, at = list[bytes](), 0
        data = self._held + data
        self._held = b""
        while at < len(data):
            if gone := min(self._dropping, len(data) - at):
                self._dropping -= gone
            elif gone := min(self._passing, len(data) - at):
                self._passing -= gone
                said.append(data[at : at + gone])
            elif (found := self._next(data[at : at + _PREFIX + MOST_ERROR])) is None:
                self._held = data[at:]
                break
            else:
                message, gone = found
                said.append(message)
            at += gone
        return b"".join(said)

    def _next(self, data: bytes) -> tuple[bytes, int] | None:
        """Return what goes on of the message that begins here, and how many bytes that stands for; None: wait."""
        if len(data) < _PREFIX:
            return None
        length = int.from_bytes(data[1:_PREFIX])
        if length and len(data) == _PREFIX:
            return None
        is_packed = data[0] and length <= MOST_ERROR
        if not length or not (is_packed or (not data[0] and data[_PREFIX] == _TELLS_ERROR)):
            self._passing = length
            return data[:_PREFIX], _PREFIX
        whole = min(length, MOST_ERROR)
        if len(data) < _PREFIX + whole:
            return None
        if is_packed:
            message = unpacked(data[_PREFIX : _PREFIX + whole])
            if not message.startswith(bytes((_TELLS_ERROR,))):
                return data[: _PREFIX + whole], _PREFIX + whole
            return framed(self._told(message)), _PREFIX + whole
        self._dropping = length - whole
        return framed(self._told(data[_PREFIX : _PREFIX + whole])), _PREFIX + whole

    def _told(self, message: bytes) -> bytes:
        try:
            found = field_at(message, 0)
        except MalformedError:
            found = None
        if found is None:
            return b""
        _, _, start, end = found
        said = message[start:end].decode("utf-8", "replace")
        plain = self._plain(said)
        return message if plain == said else text(_ERROR_MESSAGE, plain.encode()) + message[end:]
