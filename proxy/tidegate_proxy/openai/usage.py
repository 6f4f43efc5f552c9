"""The tokens that a call used, as its response reports them (`usage`), read as it passes."""

import re
from typing import Any

import msgspec

from ..bodies import UNREADABLE

_LONGEST_MARK = 48  # Bytes of `"type": "response.completed"`, and some more.
_KEY = b'"usage"'
_MOST_EVENT = 16 * 1024  # Bytes of the longest event that is held until it is complete.
_MOST_USAGE = 4096  # Bytes of the longest usage.
_BYTES = 4  # Bytes of text for each token, if nothing else is known.
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{((?:[^{}]++|\{[^{}]*+\})*+)\})')
"""The lookahead keeps a match in a caller's own words from hiding a later usage. In JSON text, such as those words, a
quotation mark has a backslash before it, and so does not match."""
_begins = re.compile(rb'"usage"\s*:\s*\{').search
_PROMPT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
_begins_event = re.compile(rb"\n(?:data|event):").search
_ends = re.compile(rb'\ndata: *\[DONE\]|(?:\nevent: ?|"type"\s*:\s*")response\.(?:completed|incomplete)').search
"""The last event: `[DONE]`, or a response that is completed or incomplete. In JSON text, line breaks and quotation
marks have a backslash, so a completion cannot look like one."""
_names_error = re.compile(rb'\nevent: ?(?:error|response\.failed)|"type"\s*:\s*"response\.failed"').search
_REQUESTED = re.compile(
    rb'^data: ?\{(?=[^\n]*"choices"\s*:\s*\[\s*\])(?=[^\n]*"usage"\s*:\s*\{)[^\n]*+\n\r?\n', re.MULTILINE
)
"""The additional event of a stream that reports its usage. It has no choices. The pattern scans no line again for each
usage in it."""


class _Event(msgspec.Struct):
    error: Any = None
    type: Any = None
    object: Any = None
    model_name: Any = None  # In each response of Triton, one of whose tensors can be called `error`.


_event = msgspec.json.Decoder(_Event)


def _has_error(recent: bytes) -> bool:
    """Return whether an event reports an error, in the form of Triton, vLLM, SGLang, Dynamo or OpenAI. An event can
    have several lines of data, and some servers have no blank line between events."""
    for text in recent.split(b"\n\n") if b'"error"' in recent else ():
        lines = [line[5:] for line in text.split(b"\n") if line.startswith(b"data:")]
        for data in {b"\n".join(lines), *lines}:
            try:
                event = _event.decode(data)
            except UNREADABLE:
                continue
            if event.model_name is None and (event.error or "error" in (event.type, event.object)):
                return True
    return False


class Usage:
    """Reads one response. To hide the event that the caller has not requested (`hides`), it passes on whole events.
    `ends` means that a stream has a last event."""

    __slots__ = (
        "_ends", "_events", "_has_ended", "_has_error", "_held", "_hides", "_is_of_events", "_streams",
        "_unfinished", "_unread", "_used",
    )  # fmt: skip

    def __init__(self, streams: bool, hides: bool, ends: bool = True) -> None:
        self._streams = streams
        self._ends = ends
        self._hides = hides
        self._held = b""  # The beginning of an event.
        self._unread = b""  # The last bytes, in which a usage may have begun.
        self._used = 0, 0  # The largest reported usage so far.
        self._events = 0
        self._is_of_events: bool | None = None
        """Whether it is plain events, not another format and not compressed. None before the first bytes."""
        self._has_error = self._has_ended = False
        self._unfinished = b"\n"  # The last event so far, or the last line if these are no events.

    def feed(self, data: bytes) -> bytes:
        """Take some bytes of the response. Return the bytes to pass on."""
        if self._ends:
            self._read(self._unread + data)
        if not self._streams:
            return data
        self._events += data.count(b"data:")
        recent = (self._unfinished + data).replace(b"\r", b"")
        if not self._is_of_events:
            begins_with_comment = self._is_of_events is None and data[:1] == b":"
            self._is_of_events = begins_with_comment or _begins_event(recent) is not None
        if b'"error"' in recent or b"event:" in recent or b"[DONE]" in recent or b'"response.' in recent:
            self._has_ended = self._has_ended or _ends(recent) is not None
            self._has_error = self._has_error or _names_error(recent) is not None or _has_error(recent)
        rest = recent[recent.rfind(b"\n\n") + 1 if self._is_of_events else max(0, recent.rfind(b"\n")) :]
        self._unfinished = rest if len(rest) <= _MOST_EVENT else rest[-_LONGEST_MARK:]
        if not self._hides:
            return data
        if self._held:
            data = self._held + data
        end = max(data.rfind(b"\n\n") + 2, data.rfind(b"\n\r\n") + 3)
        if end < 3 or len(data) - end > _MOST_EVENT:  # no event ends here, or it is too long for the usage
            end = 0 if len(data) <= _MOST_EVENT else len(data)
        self._held, data = data[end:], data[:end]
        return data if _begins(data) is None else _REQUESTED.sub(b"", data)

    def end(self) -> bytes:
        """Return the held bytes at the end of the response."""
        rest, self._held = self._held, b""
        return rest

    def breaks_off(self) -> bool:
        """Return whether an event reported an error, or a stream's last event or all of the stream is missing."""
        is_open = self._streams and self._ends and not self._has_ended
        return self._has_error or (is_open and (self._is_of_events or not self._unread))

    def reported(self) -> tuple[int, int] | None:
        """Return the reported tokens of the prompt and of the completion. None if the response reports none. Of several
        reports, the largest counts, because some engines repeat a caller's own words."""
        return self._used if any(self._used) else None

    def _read(self, data: bytes) -> None:
        if (at := data.rfind(_KEY)) < 0:
            self._unread = data[1 - len(_KEY) :]
            return
        for usage in _USAGE.finditer(data):
            prompt, completion = (_number(part.search(usage[1])) for part in (_PROMPT, _COMPLETION))
            self._used = max(self._used, (prompt, completion), key=sum)
        self._unread = data[at:] if len(data) - at <= _MOST_USAGE else data[1 - len(_KEY) :]

    def estimated(self, requested: int, answered: int) -> int:
        """Return a guess of the tokens of a call of so many bytes whose response reports none.

        It is too high if many of the bytes are JSON or numbers of a vector. It is too low if tokens are shorter than
        four bytes, or if an event has several tokens. It is also too low before the first event, and if the engine goes
        on after its caller has left.
        """
        return requested // _BYTES + (self._events if self._streams else answered // _BYTES)


def _number(match: re.Match[bytes] | None) -> int:
    return 0 if match is None else int(match[1])
