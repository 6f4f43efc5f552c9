"""What a call used, in tokens, as the end of its answer tells it (`usage`): read as it goes by."""

import re

from ..told_errors import MOST_ERROR

_TAIL = 4096  # Bytes at the end of an answer in which its usage stands; engines say little behind it.
_PARTS = 16  # Of an answer, that are kept before what is too much of them is left out.
_BYTES = 4  # Of text for each token, where nothing else is known of it.
_USAGE = re.compile(rb'"usage"\s*:\s*\{((?:[^{}]++|\{[^{}]*+\})*+)\}')
_begins = re.compile(rb'"usage"\s*:\s*\{').search
_PROMPT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
_ASKED_FOR = re.compile(
    rb'^data: ?\{(?=[^\n]*"choices"\s*:\s*\[\s*\])[^\n]*"usage"\s*:\s*\{[^\n]*\n\r?\n', re.MULTILINE
)
"""The event that a stream has more when it is to tell its usage: it has no choices."""


class Usage:
    """Reads one answer. Where it `hides` the event that the caller has not asked for, an event is handed on whole."""

    __slots__ = ("_events", "_held", "_hides", "_parts", "_streams")

    def __init__(self, streams: bool, hides: bool) -> None:
        self._streams = streams
        self._hides = hides
        self._held = b""  # The beginning of an event.
        self._parts = list[bytes]()
        self._events = 0

    def feed(self, data: bytes) -> bytes:
        """Return what can go on, now that this has come."""
        self._parts.append(data[-_TAIL:])
        if len(self._parts) == _PARTS:
            self._parts = [self._tail()]
        if not self._streams:
            return data
        self._events += data.count(b"data:")
        if not self._hides:
            return data
        if self._held:
            data = self._held + data
        end = max(data.rfind(b"\n\n") + 2, data.rfind(b"\n\r\n") + 3)
        if end < 3 or len(data) - end > MOST_ERROR:  # none ends here, or one is too long to be the one
            end = 0 if len(data) <= MOST_ERROR else len(data)
        self._held, data = data[end:], data[:end]
        return data if _begins(data) is None else _ASKED_FOR.sub(b"", data)

    def end(self) -> bytes:
        """Return what is left at the end of the answer."""
        rest, self._held = self._held, b""
        return rest

    def told(self) -> tuple[int, int] | None:
        """Return the tokens of the prompt, and of the completion, as the answer says; None where it does not.

        Of several the most: a caller's own words, which some engines repeat, are no way to less.
        """
        found = [
            tuple(int(match[1]) if (match := part.search(said[1])) else 0 for part in (_PROMPT, _COMPLETION))
            for said in _USAGE.finditer(self._tail())
        ]
        prompt, completion = max(found, key=sum, default=(0, 0))
        return (prompt, completion) if prompt or completion else None

    def _tail(self) -> bytes:
        return b"".join(self._parts)[-_TAIL:]

    def estimated(self, asked: int, answered: int) -> int:
        """Return about how many tokens a call of so many bytes used whose answer tells nothing of that."""
        return asked // _BYTES + (self._events if self._streams else answered // _BYTES)
