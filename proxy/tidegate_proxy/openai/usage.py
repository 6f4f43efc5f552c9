"""What a call used, in tokens, as its answer tells it (`usage`): read as it goes by."""

import re

_KEY = b'"usage"'
_MOST_EVENT = 16 * 1024  # Bytes of an event that is held until it is whole.
_MOST_USAGE = 4096  # Bytes that a usage has at most.
_BYTES = 4  # Of text for each token, where nothing else is known of it.
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{((?:[^{}]++|\{[^{}]*+\})*+)\})')
"""Looks ahead: what looks like one, and is a caller's own words, takes none that follows out of sight. In a text, as a
caller's are, a quotation mark has a backslash before it, and is none of these."""
_begins = re.compile(rb'"usage"\s*:\s*\{').search
_PROMPT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
_CHUNK = re.compile(rb'"object"\s*:\s*"(?:chat\.completion\.chunk|text_completion)"')
_reports_error = re.compile(
    rb"\n(?:event: ?(?:error|response\.failed)"
    rb'|data: ?\{\s?"(?:error|object"\s?:\s?"error|type"\s?:\s?"(?:error|response\.failed))")'
).search
"""An event that reports an error, as Triton, vLLM, SGLang, Dynamo and OpenAI write it. In JSON text, a line break has a
backslash, so a completion cannot look like one."""
_LONGEST_END = 48  # Bytes of what begins an error event, or of `data: [DONE]` with the empty lines after it.
_ASKED_FOR = re.compile(
    rb'^data: ?\{(?=[^\n]*"choices"\s*:\s*\[\s*\])(?=[^\n]*"usage"\s*:\s*\{)[^\n]*+\n\r?\n', re.MULTILINE
)
"""The event that a stream has more when it is to tell its usage: it has no choices. No line is looked at again for each
usage in it."""


class Usage:
    """Reads one answer. Where it `hides` the event that the caller has not asked for, an event is handed on whole."""

    __slots__ = ("_events", "_has_error", "_held", "_hides", "_is_of_chunks", "_last", "_streams", "_unread", "_used")

    def __init__(self, streams: bool, hides: bool) -> None:
        self._streams = streams
        self._hides = hides
        self._held = b""  # The beginning of an event.
        self._unread = b""  # What came last: a usage may have begun there.
        self._used = 0, 0  # The most that was told so far.
        self._events = 0
        self._is_of_chunks = False  # Whether it is a stream that has to end with `[DONE]`.
        self._has_error = False
        self._last = b"\n"

    def feed(self, data: bytes) -> bytes:
        """Return what can go on, now that this has come."""
        self._read(self._unread + data)
        if not self._streams:
            return data
        self._events += data.count(b"data:")
        self._is_of_chunks = self._is_of_chunks or _CHUNK.search(data) is not None
        recent = self._last + data
        self._has_error = self._has_error or _reports_error(recent) is not None
        self._last = recent[-_LONGEST_END:]
        if not self._hides:
            return data
        if self._held:
            data = self._held + data
        end = max(data.rfind(b"\n\n") + 2, data.rfind(b"\n\r\n") + 3)
        if end < 3 or len(data) - end > _MOST_EVENT:  # none ends here, or one is too long to be the one
            end = 0 if len(data) <= _MOST_EVENT else len(data)
        self._held, data = data[end:], data[:end]
        return data if _begins(data) is None else _ASKED_FOR.sub(b"", data)

    def end(self) -> bytes:
        """Return what is left at the end of the answer."""
        rest, self._held = self._held, b""
        return rest

    def breaks_off(self) -> bool:
        """Return whether an event reported an error, or chunks came, but not the event that ends them."""
        return self._has_error or (self._is_of_chunks and b"[DONE]" not in self._last)

    def told(self) -> tuple[int, int] | None:
        """Return the tokens of the prompt, and of the completion, as the answer says; None where it does not.

        Of several the most: a caller's own words, which some engines repeat, are no way to less.
        """
        return self._used if any(self._used) else None

    def _read(self, data: bytes) -> None:
        if (at := data.rfind(_KEY)) < 0:
            self._unread = data[1 - len(_KEY) :]
            return
        for said in _USAGE.finditer(data):
            prompt, completion = (_number(part.search(said[1])) for part in (_PROMPT, _COMPLETION))
            self._used = max(self._used, (prompt, completion), key=sum)
        self._unread = data[at:] if len(data) - at <= _MOST_USAGE else data[1 - len(_KEY) :]

    def estimated(self, asked: int, answered: int) -> int:
        """Return about how many tokens a call of so many bytes used whose answer tells nothing of that: a guess.

        It is too much where JSON or the numbers of a vector are many of the bytes, and too little where tokens are
        shorter than four bytes, where an event brings several tokens or none has come yet, and of what the engine still
        does for a caller that has left.
        """
        return asked // _BYTES + (self._events if self._streams else answered // _BYTES)


def _number(match: re.Match[bytes] | None) -> int:
    return 0 if match is None else int(match[1])
