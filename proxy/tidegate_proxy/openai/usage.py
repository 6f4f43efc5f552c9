"""What a call used, in tokens, as its answer tells it (`usage`): read as it goes by."""

import re
from typing import Any

import msgspec

from ..bodies import UNREADABLE

_LONGEST_MARK = 48  # Bytes of `"type": "response.completed"`, with room.
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
_begins_event = re.compile(rb"\n(?:data|event):").search
_ends = re.compile(rb'\ndata: *\[DONE\]|(?:\nevent: ?|"type"\s*:\s*")response\.(?:completed|incomplete)').search
"""The last event: `[DONE]`, or of a response that is completed or incomplete. In JSON text, line breaks and quotation
marks have a backslash, so a completion cannot look like one."""
_names_error = re.compile(rb'\nevent: ?(?:error|response\.failed)|"type"\s*:\s*"response\.failed"').search
_ASKED_FOR = re.compile(
    rb'^data: ?\{(?=[^\n]*"choices"\s*:\s*\[\s*\])(?=[^\n]*"usage"\s*:\s*\{)[^\n]*+\n\r?\n', re.MULTILINE
)
"""The event that a stream has more when it is to tell its usage: it has no choices. No line is looked at again for each
usage in it."""


class _Event(msgspec.Struct):
    error: Any = None
    type: Any = None
    object: Any = None
    model_name: Any = None  # In each answer of Triton's: one of its tensors may be called `error`.


_event = msgspec.json.Decoder(_Event)


def _has_error(recent: bytes) -> bool:
    """Tell whether an event reports an error, as Triton, vLLM, SGLang, Dynamo and OpenAI write it."""
    for line in recent.split(b"\n") if b'"error"' in recent else ():
        if line.startswith(b"data:"):
            try:
                event = _event.decode(line[5:])
            except UNREADABLE:
                continue
            if event.model_name is None and (event.error or "error" in (event.type, event.object)):
                return True
    return False


class Usage:
    """Reads one answer. Where it `hides` the event that the caller has not asked for, an event is handed on whole.

    `ends`: a stream has a last event.
    """

    __slots__ = (
        "_ends", "_events", "_has_ended", "_has_error", "_held", "_hides", "_is_of_events", "_line", "_streams",
        "_unread", "_used",
    )  # fmt: skip

    def __init__(self, streams: bool, hides: bool, ends: bool = True) -> None:
        self._streams = streams
        self._ends = ends
        self._hides = hides
        self._held = b""  # The beginning of an event.
        self._unread = b""  # What came last: a usage may have begun there.
        self._used = 0, 0  # The most that was told so far.
        self._events = 0
        self._is_of_events: bool | None = None
        """Whether what came is plain events, neither another answer nor compressed; None before anything has come."""
        self._has_error = self._has_ended = False
        self._line = b"\n"  # The last line so far.

    def feed(self, data: bytes) -> bytes:
        """Return what can go on, now that this has come."""
        if self._ends:
            self._read(self._unread + data)
        if not self._streams:
            return data
        self._events += data.count(b"data:")
        recent = self._line + data
        if not self._is_of_events:
            begins_with_comment = self._is_of_events is None and data[:1] == b":"
            self._is_of_events = begins_with_comment or _begins_event(recent) is not None
        if b'"error"' in recent or b"event:" in recent or b"[DONE]" in recent or b'"response.' in recent:
            self._has_ended = self._has_ended or _ends(recent) is not None
            self._has_error = self._has_error or _names_error(recent) is not None or _has_error(recent)
        if data[-1:] == b"\n":
            self._line = b"\n"
        else:
            line = recent[max(0, recent.rfind(b"\n")) :]
            self._line = line if len(line) <= _MOST_EVENT else line[-_LONGEST_MARK:]
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
        """Return whether an event reported an error, or the last event of a stream is missing, or all of it."""
        is_open = self._streams and self._ends and not self._has_ended
        return self._has_error or (is_open and (self._is_of_events or not self._unread))

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
