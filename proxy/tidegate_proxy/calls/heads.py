"""What the headers of gRPC's HTTP/2 requests and answers say, and how they are written.

Header blocks are compressed (HPACK, RFC 7541). A caller's blocks are the same bytes again and again, so what was
understood of a block is kept for as long as the table that it refers to stays as it is.
"""

import re
from collections.abc import Callable
from typing import Generic, TypeVar

from hpack import Decoder

from ..request_ids import is_request_id

MOST_HEAD_BYTES = 32 * 1024
"""Bytes of a header block, compressed or not."""
_MOST_KEPT = 16
_LONGEST_KEPT = 4096

Fields = list[tuple[bytes, bytes]]
Understood = TypeVar("Understood")

_NAME = re.compile(rb"[0-9a-z_.-]+")
_UNFIT = re.compile(rb"[\x00\r\n]")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_CONNECTION = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_OWN = frozenset(
    {b"te", b"content-type", b"content-length", b"host", b"cookie", b"proxy-authorization", b"tidegate-control"}
)
# Triton's restricted protocols are opened by metadata of this name: no caller's ever reaches it.
_RESTRICTED = b"triton-grpc-protocol-"


class MalformedHeadError(Exception):
    """These headers are no request's, or no answer's."""


def literal(name: bytes, value: bytes) -> bytes:
    """Write a header in the one way that needs no table (RFC 7541, 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(value: bytes) -> bytes:
    length = len(value)
    if length < 127:
        return bytes((length,)) + value
    rest = length - 127
    written = bytearray((127,))
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written) + value


class Headers(Generic[Understood]):
    """Decompresses one peer's header blocks, and has them understood."""

    def __init__(self, understand: Callable[[Fields], Understood]) -> None:
        self._decoder = Decoder(max_header_list_size=2 * MOST_HEAD_BYTES)
        self._understand = understand
        self._kept: dict[bytes, Understood] = {}

    def read(self, block: bytes) -> Understood:
        """Return what a block says; raises MalformedHeadError, or HPACKError after which no other can be read."""
        found = self._kept.get(block)
        if found is not None:
            return found
        before = self._state()
        fields = self._decoder.decode(block, raw=True)
        after = self._state()
        if before[0] is not after[0] or before[1:] != after[1:]:
            self._kept.clear()
            kept = False
        else:
            kept = len(block) <= _LONGEST_KEPT
        found = self._understand([(bytes(name), bytes(value)) for name, value in fields])
        if kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[block] = found
        return found

    def _state(self) -> tuple[object, int, int]:
        # An entry that is added comes first in the table, as an object of its own.
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return entries[0] if entries else None, len(entries), table.maxsize


class RequestHead:
    """What a caller asks, as far as the headers tell."""

    __slots__ = (
        "_scheme", "accepts", "content_type", "context", "credential", "credentials", "encoding", "method", "passed",
        "path", "request_id", "seconds", "server", "sticky", "trace_parents", "trace_states",
    )  # fmt: skip

    def __init__(self, fields: Fields) -> None:
        self.method = self.path = self._scheme = self.content_type = b""
        self.credential = b""
        self.credentials = 0
        """How many there are; more than one are refused."""
        self.server: bytes | None = None
        self.sticky: bytes | None = None
        self.request_id = b""
        self.encoding = b"identity"
        self.accepts = b""
        self.seconds: float | None = None
        """Seconds that the caller waits."""
        self.trace_parents: list[bytes] = []
        self.trace_states: list[bytes] = []
        self.context = b""
        """The same (W3C Trace Context) for the replica, as it is sent."""
        passed: list[bytes] = []
        for name, value in fields:
            if name[:1] == b":":
                if passed or self._pseudo(name, value):
                    raise MalformedHeadError
            elif not _NAME.fullmatch(name) or _UNFIT.search(value) or name in _CONNECTION or _strange_te(name, value):
                raise MalformedHeadError
            elif not self._own(name, value):
                passed.append(literal(name, value))
        if not (self.method and self.path and self._scheme):
            raise MalformedHeadError
        self.passed = b"".join(passed)
        """Headers for the replica, as they are sent."""

    def _pseudo(self, name: bytes, value: bytes) -> bool:
        """Take a header of HTTP/2's own; return whether it is wrong."""
        if name == b":path":
            wrong, self.path = bool(self.path), value
        elif name == b":method":
            wrong, self.method = bool(self.method), value
        elif name == b":scheme":
            wrong, self._scheme = bool(self._scheme), value
        else:
            wrong = name != b":authority"
        return wrong

    def _own(self, name: bytes, value: bytes) -> bool:
        """Take a header that is the proxy's business, and no replica's; return whether it is."""
        if name == b"authorization":
            self.credentials += 1
            self.credential = value
        elif name in (b"x-api-key", b"x-domino-api-key"):
            self.credentials += 1
            self.credential = name + b" " + value
        elif name == b"inference-server":
            self.server = value or None
        elif name == b"tidegate-sticky":
            self.sticky = value
        elif name == b"x-request-id":
            if is_request_id(value):
                self.request_id = value
        elif name[:5] == b"grpc-":
            self._grpc(name, value)
        elif name == b"content-type":
            self.content_type = value
        elif name in (b"traceparent", b"tracestate"):
            (self.trace_parents if name == b"traceparent" else self.trace_states).append(value)
            self.context += literal(name, value)
        else:
            return name in _OWN or name.startswith(_RESTRICTED)
        return True

    def _grpc(self, name: bytes, value: bytes) -> None:
        if name == b"grpc-timeout":
            if not (said := _TIMEOUT.fullmatch(value)):
                raise MalformedHeadError
            self.seconds = int(said[1]) * _UNITS[said[2]]
        elif name == b"grpc-encoding":
            self.encoding = value
        elif name == b"grpc-accept-encoding":
            self.accepts = literal(name, value)


def _strange_te(name: bytes, value: bytes) -> bool:
    return name == b"te" and value != b"trailers"


class AnswerHead:
    """What a replica answers with before its messages, or after them."""

    __slots__ = ("block", "grpc_status", "status")

    def __init__(self, fields: Fields) -> None:
        self.status = 0
        self.grpc_status: int | None = None
        """Only in what ends an answer."""
        passed: list[bytes] = []
        for name, value in fields:
            if name == b":status":
                self.status = int(value) if value.isdigit() else 0
                continue
            if name[:1] == b":" or name in _CONNECTION:
                raise MalformedHeadError
            if name == b"grpc-status":
                self.grpc_status = int(value) if value.isdigit() else 2
            passed.append(literal(name, value))
        self.block = b"".join(passed)
        """The same for the caller, without the status of HTTP."""
