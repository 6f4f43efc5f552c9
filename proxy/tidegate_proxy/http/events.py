"""Errors among the events of a stream (server-sent events), as callers may have them; all others pass as they come."""

from collections.abc import Callable

from ..told_errors import MOST_ERROR

_BEGINS = b'data: {"error":'
_FIELD = len(b"data: ")


class ErrorEvents:
    """Makes plain what tells an error; `plain` returns an error's body as callers may have it."""

    def __init__(self, plain: Callable[[bytes], bytes]) -> None:
        self._plain = plain
        self._held = b""  # The beginning of a line that may tell an error.
        self._within = False  # Whether a line has begun to go on, and not ended yet.
        self._drops = False  # Whether what follows in that line is left out.

    def feed(self, data: bytes) -> bytes:
        """Return what can go on, now that this has come."""
        if data and not (self._held or self._drops) and self._passes(data):
            self._within = not data.endswith(b"\n")
            return data
        *lines, rest = (self._held + data).split(b"\n")
        said = list[bytes]()
        for line in lines:
            said += (self._next(line), b"\n")
            self._within = self._drops = False
        is_error = rest.startswith(_BEGINS)
        if not self._within and len(rest) <= MOST_ERROR and (is_error or _BEGINS.startswith(rest)):
            self._held = rest
        else:
            said.append(self._next(rest))
            self._drops = self._drops or (is_error and not self._within)
            self._held, self._within = b"", True
        return b"".join(said)

    def end(self) -> bytes:
        """Return what is left at the end of the stream."""
        rest, self._held = self._held, b""
        return self._next(rest)

    def _passes(self, data: bytes) -> bool:
        """Tell whether no line of it begins as an error does, nor the last one in part: long events are not copied."""
        last = data[(begins := data.rfind(b"\n") + 1) : begins + len(_BEGINS)]
        if last and _BEGINS.startswith(last):
            return False
        return b"\n" + _BEGINS not in data and (self._within or not data.startswith(_BEGINS))

    def _next(self, line: bytes) -> bytes:
        if self._within:
            return b"" if self._drops else line
        if not line.startswith(_BEGINS):
            return line
        return line[:_FIELD] + self._plain(line[_FIELD : _FIELD + MOST_ERROR].rstrip(b"\r"))
