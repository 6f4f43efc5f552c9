"""The head of an HTTP call: its parameters, the framing of its body, and the headers that go on to the replica."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from time import monotonic
from typing import Any

import httptools
from httptools import HttpRequestParser
from tidegate_contracts import triton

from ..forwarding import Forwarding
from ..headers import LAST_DIGITS, PLAIN, is_request_id, new_request_id, nominated, without
from ..problems import TWO_CREDENTIALS, Problem, ProblemType
from ..targets import Target
from .body import Caller, RequestBody

MOST_HEAD_BYTES = 64 * 1024  # Bytes of a request's first line and headers.
HALF_A_HEAD = MOST_HEAD_BYTES // 2
MOST_HEADERS = 256  # Headers of a request. Each costs time, however short it is.
log = logging.getLogger(__name__)

(
    _PASS, _DROP, _AUTHORIZATION, _KEY, _LENGTH, _ENCODING, _EXPECT, _REQUEST_ID, _SECONDS, _STICKY, _HOST, _CONNECTION,
    _PROXY_CONNECTION, _UPGRADE,
) = range(14)  # fmt: skip
_KINDS = {
    b"authorization": _AUTHORIZATION,
    b"x-api-key": _KEY,
    b"x-domino-api-key": _KEY,
    b"content-length": _LENGTH,
    b"transfer-encoding": _ENCODING,
    b"expect": _EXPECT,
    b"x-request-id": _REQUEST_ID,
    b"request-timeout": _SECONDS,
    b"tidegate-sticky": _STICKY,
    b"host": _HOST,
    # Headers of this connection, and headers that no replica must see.
    b"connection": _CONNECTION,
    b"keep-alive": _DROP,
    b"proxy-connection": _PROXY_CONNECTION,
    b"proxy-authorization": _DROP,
    b"te": _DROP,
    b"trailer": _DROP,
    b"upgrade": _UPGRADE,
    b"http2-settings": _DROP,
    b"cookie": _DROP,
    triton.RESTRICTED_KEY.encode(): _DROP,  # It opens Triton's restricted protocols, so callers must not set it.
    # All other headers are passed on. These are listed because they are frequent, so that their look-up is fast.
    b"accept": _PASS,
    b"accept-encoding": _PASS,
    b"content-type": _PASS,
    b"inference-header-content-length": _PASS,
    b"traceparent": _PASS,
    b"tracestate": _PASS,
    b"user-agent": _PASS,
}


class _Kinds(dict[bytes, int]):
    """The kind of each header by its name, in any case."""

    def __missing__(self, name: bytes) -> int:
        return self.get(name.lower(), _PASS)


_HEADERS = _Kinds(_KINDS | {name.title(): kind for name, kind in _KINDS.items()})


def _never(_data: bytes) -> None:
    """Match nothing: the shape is not frequent."""


@dataclass(slots=True)
class Shape:
    """How to read heads with the same names in the same order."""

    names: tuple[bytes, ...]
    lines: bytes  # A template of the lines to pass on.
    pick: Callable[[Sequence[bytes]], Any]  # Picks their values.
    length: int  # The position of Content-Length, or -1. So are the other positions.
    credential: int
    prefix: bytes  # To add to the credential.
    request_id: int
    connection: int
    seen: int = 0
    match: Callable[[bytes], re.Match[bytes] | None] = _never
    """Matches a head of this shape at the beginning of data. It is stricter than the parser: all values are plain."""


_OFTEN = 3
_MOST_SHAPES = 512
_LONGEST_SHAPE = 512  # Bytes of all names in one shape.
_MOST_NAMES = 32
_PLACED = frozenset({_HOST, _LENGTH, _AUTHORIZATION, _KEY, _REQUEST_ID, _CONNECTION})


class Shapes(dict[tuple[bytes, ...], Shape | None]):
    """A cache of shapes, by the names of the headers. None: such heads must be read header by header."""

    def __init__(self, pattern_seconds: float = 0.5) -> None:
        self._pattern_seconds = pattern_seconds  # Compiling one takes milliseconds, and names are the caller's choice.
        self._next_pattern = 0.0

    def add(self, names: tuple[bytes, ...]) -> Shape | None:
        """Return how to read heads with these names, and cache it."""
        kinds = [_HEADERS[name] for name in names]
        placed = [kind for kind in kinds if kind in _PLACED]
        passed = [place for place, kind in enumerate(kinds) if kind == _PASS]
        is_plain = passed and kinds.count(_HOST) == 1 and not set(kinds) - _PLACED - {_PASS, _DROP}
        shape: Shape | None = None
        if is_plain and len(set(placed)) == len(placed) and not {_AUTHORIZATION, _KEY} <= set(placed):
            places = {kind: place for place, kind in enumerate(kinds)}
            length, own, connection = (places.get(kind, -1) for kind in (_LENGTH, _REQUEST_ID, _CONNECTION))
            credential = places.get(_AUTHORIZATION, places.get(_KEY, -1))
            prefix = names[credential].lower() + b" " if _KEY in places else b""
            lines = b"".join(names[place].replace(b"%", b"%%") + b": %b\r\n" for place in passed)
            shape = Shape(names, lines, itemgetter(*passed), length, credential, prefix, own, connection)
        if len(names) <= _MOST_NAMES and sum(map(len, names)) <= _LONGEST_SHAPE:
            if len(self) >= _MOST_SHAPES:
                self.clear()
            self[names] = shape
        return shape

    def learn(self, shape: Shape) -> None:
        """Count a head of a shape. A frequent shape gets a pattern, which is faster than the parser."""
        shape.seen += 1
        if shape.seen >= _OFTEN and shape.match is _never and (now := monotonic()) >= self._next_pattern:
            self._next_pattern = now + self._pattern_seconds
            value = [rb"[!-~](?:[ -~]*[!-~])?"] * len(shape.names)
            if shape.length >= 0:
                value[shape.length] = rb"[0-9]{1,15}"
            if shape.connection >= 0:
                value[shape.connection] = rb"[Kk]eep-[Aa]live"
            lines = [b"%b: (%b)\r\n" % (re.escape(name), each) for name, each in zip(shape.names, value, strict=True)]
            shape.match = re.compile(rb"(GET|POST) ([!-~]+) HTTP/1\.1\r\n" + b"".join(lines) + b"\r\n").match


class HeadedRequest(Forwarding):
    """A request whose head is complete."""

    __slots__ = (
        "body", "caller", "credential", "deadline", "expects_continue", "http_11", "keep_alive", "method", "passed",
        "refusal", "request_id", "response_complete", "shape", "started", "target",
    )  # fmt: skip
    body: RequestBody
    caller: Caller
    target: Target
    refusal: Problem | None  # Why the request is refused, if it is.
    shape: Shape | None  # Of the head, unless each header was read.
    started: float  # Monotonic seconds, like `deadline`.

    def read_head(self, headers: list[bytes], parser: HttpRequestParser, before: int, shapes: Shapes) -> bool:
        """Read the head. Return whether the caller requests another protocol (`Upgrade`). `headers` alternates names
        and values. `before` is the number of bytes received before the last data."""
        names, values = tuple(headers[::2]), headers[1::2]
        shape = shapes.get(names)
        if shape is None and not self.caller.is_unknown and names not in shapes:
            shape = shapes.add(names)
        at = -1 if shape is None else shape.connection
        if shape is None or before > HALF_A_HEAD or (at >= 0 and values[at] not in PLAIN):
            has_connection, own, length, chunked, upgrades = self._read_each(headers, parser, before)
            self.shape = None
        else:
            own, length = self._read_values(shape, values)
            has_connection, chunked, upgrades = at >= 0, False, False
            self.shape = shape
        keep_alive = parser.should_keep_alive()
        # Without a Connection header only HTTP/1.1 keeps the connection. Getting the version from the parser is slow.
        self.http_11 = http_11 = (keep_alive and not has_connection) or spoken_version(parser) == "1.1"
        self.keep_alive = keep_alive and http_11
        self.method = parser.get_method()
        self.request_id = own if own and is_request_id(own) else new_request_id()
        self.body = RequestBody(length, chunked, self.shared, self.caller)
        return upgrades

    def read_whole(self, head: re.Match[bytes], shape: Shape, size: int) -> bool:
        """Read a head that the shape's pattern has matched. Return whether its body has `size` bytes."""
        method, _, *values = head.groups()
        own, length = self._read_values(shape, values)
        if size != (length or 0):
            return False
        self.http_11 = self.keep_alive = True
        self.method = method
        self.request_id = own if own and is_request_id(own) else new_request_id()
        self.body = RequestBody(length, False, self.shared, self.caller)
        return True

    def _read_values(self, shape: Shape, values: Sequence[bytes]) -> tuple[bytes, int | None]:
        """Read a head of a shape. Return the request ID that the caller chose, and the body's length."""
        self.credential = b"" if shape.credential < 0 else shape.prefix + values[shape.credential]
        self.passed = shape.lines % shape.pick(values)  # The header lines to pass on.
        self.deadline = self.started + self.shared.call_seconds
        self.expects_continue = False
        self.sticky = self.refusal = None
        own = b"" if shape.request_id < 0 else values[shape.request_id]
        return own, None if shape.length < 0 else int(values[shape.length][LAST_DIGITS])

    @property
    def bound_is_own(self) -> bool:
        """Whether the caller accepts the proxy's own timeout, because it set no shorter one."""
        return self.deadline >= self.started + self.shared.call_seconds

    def _read_each(
        self, headers: list[bytes], parser: HttpRequestParser, before: int
    ) -> tuple[bool, bytes, int | None, bool, bool]:
        """Read the headers one by one. Return whether one concerns the connection, the caller's request ID, the body's
        length, whether the body is chunked, and whether another protocol is requested."""
        seconds = self.shared.call_seconds
        passed: list[bytes] = []
        credential = request_id = b""
        length: int | None = None
        sticky: bytes | None = None
        hosts = credentials = 0
        chunked = misframed = expects_continue = upgrades = has_connection = False
        dropped: frozenset[bytes] = frozenset()
        for name, value in zip(headers[::2], headers[1::2], strict=True):
            kind = _HEADERS[name]
            if kind == _PASS:
                passed += (name, b": ", value, b"\r\n")
            elif kind == _LENGTH:
                length = int(value[LAST_DIGITS])
            elif kind == _HOST:
                hosts += 1
            elif kind == _AUTHORIZATION:
                credentials += 1
                credential = value
            elif kind == _REQUEST_ID:
                request_id = value
            elif kind == _KEY:
                credentials += 1
                credential = name.lower() + b" " + value
            elif kind == _CONNECTION:
                has_connection = True
                if value not in PLAIN:
                    dropped |= nominated(value)
            elif kind == _ENCODING:
                # Exactly one encoding: the parser accepts others, which end a body differently.
                misframed = misframed or chunked or value.lower() != b"chunked"
                chunked = True
            elif kind == _EXPECT:
                expects_continue = value.lower() == b"100-continue"
            elif kind == _SECONDS:
                seconds = _seconds(value, seconds)
            elif kind == _STICKY:
                sticky = value or None
            elif kind == _PROXY_CONNECTION:
                has_connection = True
            elif kind == _UPGRADE:
                upgrades = True
        is_11 = spoken_version(parser) == "1.1"
        self.deadline = self.started + seconds  # The caller's timeout or the proxy's, whichever is shorter.
        self.passed = b"".join(without(passed, dropped) if dropped else passed)
        self.credential = credential
        self.expects_continue = expects_continue and is_11  # HTTP/1.0 has no interim responses (RFC 9110, 15.2)
        self.sticky = sticky
        self.refusal = None
        if before > HALF_A_HEAD and sum(map(len, passed)) > MOST_HEAD_BYTES:
            self.refusal = too_long_a_head()
        elif hosts != 1 and is_11:
            why = "A request must have exactly one Host header (RFC 9112, 3.2)."
            self.refusal = Problem(ProblemType.MALFORMED, why)
        elif misframed:
            why = "Send the body with Content-Length or with `Transfer-Encoding: chunked`, and with no other encoding."
            self.refusal = Problem(ProblemType.MALFORMED, why)
        elif credentials > 1:
            self.refusal = Problem(ProblemType.MALFORMED, TWO_CREDENTIALS)
        return has_connection, request_id, length, chunked, upgrades


def spoken_version(parser: HttpRequestParser) -> str:
    """Return the version of HTTP of a head. Raises httptools.HttpParserError unless it is 1.0 or 1.1."""
    version: str = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise httptools.HttpParserError(f"HTTP/{version}")
    return version


def _seconds(value: bytes, most: float) -> float:
    try:
        seconds = float(value)
    except ValueError:
        return most
    return min(most, seconds) if seconds > 0 else most


def too_long_a_head() -> Problem:
    """Return the problem for a head above its limits."""
    why = f"The request's headers are too large: the limit is {MOST_HEADERS} headers with {MOST_HEAD_BYTES} bytes."
    return Problem(ProblemType.HEADERS, why)


def not_parsed(error: Exception) -> Problem:
    """Return the problem for an error of the parser: the caller's fault if the request is invalid, else the proxy's. If
    one of the connection's callbacks raises an error, httptools wraps it in a HttpParserCallbackError."""
    why = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
    if isinstance(why, Problem):
        return why
    if isinstance(why, httptools.HttpParserError | httptools.HttpParserUpgrade | UnicodeDecodeError):
        return Problem(ProblemType.MALFORMED, "The request is not valid HTTP/1.1 (RFC 9112).")
    log.error("the proxy failed to receive a request", exc_info=why or error)
    return Problem(ProblemType.INTERNAL, "Internal error. Details are in the proxy's log.")
