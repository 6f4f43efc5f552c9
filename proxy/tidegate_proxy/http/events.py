"""Errors among the events of a stream (server-sent events), as callers may have them; all others pass as they come.

Servers spell them in several ways: `data: {"error": …}` (Triton, vLLM, SGLang, Dynamo), `data: {"object": "error", …}`
(older vLLM), OpenAI's own `event: error` and `event: response.failed` before the data, and data with these types;
`event: error` with the text as a comment (older Dynamo). https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import re
from collections.abc import Callable

from ..told_errors import MOST_ERROR

_DATA = rb'data: ?\{\s?"(?:error|object"\s?:\s?"error|type"\s?:\s?"(?:error|response\.failed))"'
_NAME = rb"event: ?(?:error|response\.failed)"
_is_error = re.compile(_DATA).match
_is_named = re.compile(_NAME + rb"\r?\Z").match
_begins = re.compile(rb"(?:%b|%b)" % (_DATA, _NAME)).match
_contains = re.compile(rb"\n(?:%b|%b)" % (_DATA, _NAME)).search
_field = re.compile(rb"(?:data)?: ?").match
_UNDECIDED = 40  # Bytes of a line that has come in part, by which it is not known yet whether it tells an error.


class ErrorEvents:
    """Makes plain what tells an error; `plain` returns an error's body as callers may have it."""

    def __init__(self, plain: Callable[[bytes], bytes]) -> None:
        self._plain = plain
        self._held = b""  # The beginning of a line that may tell an error.
        self._within = False  # Whether a line has begun to go on, and not ended yet.
        self._drops = False  # Whether what follows in that line is left out.
        self._named = False  # Whether the event is called an error, whatever its data are.

    def feed(self, data: bytes) -> bytes:
        """Return what can go on, now that this has come."""
        data, said, at = self._held + data, list[bytes](), 0
        if not (self._within or self._named) and self._next_error(data, 0) == len(data):
            self._held = b""
            return data  # nearly always: whole events, and no error
        while True:
            if not (self._within or self._named):  # lines that tell no error are not looked at one by one
                begins = self._next_error(data, at)
                said.append(data[at:begins])
                at = begins
            if (end := data.find(b"\n", at)) < 0:
                break
            line, at = data[at:end], end + 1
            said += (self._next(line), b"\n")
            if not self._within:
                self._named = _is_named(line) is not None or (self._named and line not in (b"", b"\r"))
            self._within = self._drops = False
        rest = data[at:]
        tells = self._tells(rest)
        if not self._within and (len(rest) < _UNDECIDED or (tells and len(rest) <= MOST_ERROR)):
            self._held = rest
        else:
            said.append(self._next(rest))
            self._drops = self._drops or (tells and not self._within)
            self._held, self._within = b"", True
        return b"".join(said)

    def end(self) -> bytes:
        """Return what is left at the end of the stream."""
        rest, self._held = self._held, b""
        return self._next(rest)

    def _next_error(self, data: bytes, at: int) -> int:
        """Return where the first line begins that tells an error, or may once it has come: the last one."""
        if _begins(data, at) is not None:
            return at
        found = _contains(data, at)
        return max(at, data.rfind(b"\n") + 1) if found is None else found.start() + 1

    def _tells(self, line: bytes) -> bool:
        return _is_error(line) is not None or (self._named and _field(line) is not None)

    def _next(self, line: bytes) -> bytes:
        if self._within:
            return b"" if self._drops else line
        if not self._tells(line):
            return line
        field = match.end() if (match := _field(line)) is not None else 0
        end = b"\r" if line.endswith(b"\r") else b""
        return line[:field] + self._plain(line[field : field + MOST_ERROR].removesuffix(end)) + end
