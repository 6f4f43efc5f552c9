"""The head of a call over HTTP: what it asks, how its body is sent, and which headers go on to the replica."""

import logging
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import httptools
from tidegate_contracts import triton

from ..forwarding import Forwarding
from ..headers import LAST_DIGITS, PLAIN, is_request_id, new_request_id, nominated, without
from ..problems import TWO_CREDENTIALS, Problem, ProblemType
from ..targets import Target
from .body import Caller, RequestBody

MOST_HEAD_BYTES = 64 * 1024  # Bytes of a request's first line and headers.
HALF_A_HEAD = MOST_HEAD_BYTES // 2
MOST_HEADERS = 256  # Headers of a request: each is work, however short.
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
    # Of this connection alone, or nobody's business but the proxy's.
    b"connection": _CONNECTION,
    b"keep-alive": _DROP,
    b"proxy-connection": _PROXY_CONNECTION,
    b"proxy-authorization": _DROP,
    b"te": _DROP,
    b"trailer": _DROP,
    b"upgrade": _UPGRADE,
    b"http2-settings": _DROP,
    b"cookie": _DROP,
    triton.RESTRICTED_KEY.encode(): _DROP,  # It opens Triton's restricted protocols: no caller's ever reaches one.
    # Others are passed on; these are so frequent that they are found at once.
    b"accept": _PASS,
    b"accept-encoding": _PASS,
    b"content-type": _PASS,
    b"inference-header-content-length": _PASS,
    b"traceparent": _PASS,
    b"tracestate": _PASS,
    b"user-agent": _PASS,
}


class _Kinds(dict[bytes, int]):
    """Kinds of headers by their names as clients write them."""

    def __missing__(self, name: bytes) -> int:
        return self.get(name.lower(), _PASS)


_HEADERS = _Kinds(_KINDS | {name.title(): kind for name, kind in _KINDS.items()})

_Shape = tuple[bytes, Callable[[Sequence[bytes]], Any], int, int, bytes, int, int]
"""How heads with the same names in the same order are read: a template of the lines that go on, a function that picks
their values, and the places of content-length, credential (with what goes before it), request id and connection."""
_NO_SHAPE: _Shape = b"", len, -1, -1, b"", -1, -1
_SHAPES: dict[tuple[bytes, ...], _Shape | None] = {}
_MOST_SHAPES = 512
_LONGEST_SHAPE = 512  # Bytes of all names of one.
_MOST_NAMES = 32
_PLACED = frozenset({_HOST, _LENGTH, _AUTHORIZATION, _KEY, _REQUEST_ID, _CONNECTION})


def _shape(names: tuple[bytes, ...]) -> _Shape | None:
    """Return how to read heads with these names, and keep that; None where one needs more than a look at its place."""
    kinds = [_HEADERS[name] for name in names]
    placed = [kind for kind in kinds if kind in _PLACED]
    passed = [place for place, kind in enumerate(kinds) if kind == _PASS]
    is_plain = passed and kinds.count(_HOST) == 1 and not set(kinds) - _PLACED - {_PASS, _DROP}
    shape: _Shape | None = None
    if is_plain and len(set(placed)) == len(placed) and not {_AUTHORIZATION, _KEY} <= set(placed):
        places = {kind: place for place, kind in enumerate(kinds)}
        length, own, connection = (places.get(kind, -1) for kind in (_LENGTH, _REQUEST_ID, _CONNECTION))
        credential = places.get(_AUTHORIZATION, places.get(_KEY, -1))
        prefix = names[credential].lower() + b" " if _KEY in places else b""
        lines = b"".join(names[place].replace(b"%", b"%%") + b": %b\r\n" for place in passed)
        shape = lines, itemgetter(*passed), length, credential, prefix, own, connection
    if len(names) <= _MOST_NAMES and sum(map(len, names)) <= _LONGEST_SHAPE:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        _SHAPES[names] = shape
    return shape


class HeadedRequest(Forwarding):
    """A request whose head is there: what it says before its body."""

    __slots__ = (
        "body", "caller", "credential", "deadline", "expects_continue", "http_11", "keep_alive", "method", "passed",
        "refusal", "request_id", "response_complete", "started", "target",
    )  # fmt: skip
    body: RequestBody
    caller: Caller
    target: Target
    refusal: Problem | None  # Why it is no request that can be answered.
    started: float  # In monotonic seconds; so is `deadline`.

    def read_head(self, headers: list[bytes], parser: httptools.HttpRequestParser, before: int) -> bool:
        """Take what its head says; return whether it wishes for another protocol.

        `headers` are names and values by turns; so many bytes came before the last ones.
        """
        names, values = tuple(headers[::2]), headers[1::2]
        shape = _SHAPES.get(names)
        if shape is None and not self.caller.is_unknown and names not in _SHAPES:
            shape = _shape(names)
        lines, pick, length_at, credential_at, prefix, own_at, connection_at = shape or _NO_SHAPE
        if not lines or before > HALF_A_HEAD or (connection_at >= 0 and values[connection_at] not in PLAIN):
            says_connection, own, length, chunked, upgrades = self._read_each(headers, parser, before)
        else:
            self.credential = b"" if credential_at < 0 else prefix + values[credential_at]
            self.passed = lines % pick(values)  # Header lines that go on.
            self.deadline = self.started + self.shared.call_seconds
            self.expects_continue = chunked = upgrades = False
            self.sticky = self.refusal = None
            says_connection = connection_at >= 0
            own = b"" if own_at < 0 else values[own_at]  # The id that its caller gives it.
            length = None if length_at < 0 else int(values[length_at][LAST_DIGITS])
        keep_alive = parser.should_keep_alive()
        # Where nothing is said of the connection, only one of HTTP/1.1 is kept: the version itself takes long to get.
        self.http_11 = http_11 = (keep_alive and not says_connection) or spoken_version(parser) == "1.1"
        self.keep_alive = keep_alive and http_11
        self.method = parser.get_method()
        self.request_id = own if own and is_request_id(own) else new_request_id()
        self.body = RequestBody(length, chunked, self.shared, self.caller)
        return upgrades

    @property
    def bound_is_own(self) -> bool:
        """Whether the caller waits for as long as the proxy does: it named no shorter time."""
        return self.deadline >= self.started + self.shared.call_seconds

    def _read_each(
        self, headers: list[bytes], parser: httptools.HttpRequestParser, before: int
    ) -> tuple[bool, bytes, int | None, bool, bool]:
        """Take what each header says; return whether one is of the connection, the caller's id, the body's length,
        whether it is chunked, and whether another protocol is wished for."""
        seconds = self.shared.call_seconds
        passed: list[bytes] = []
        credential = request_id = b""
        length: int | None = None
        sticky: bytes | None = None
        hosts = credentials = 0
        chunked = misframed = expects_continue = upgrades = says_connection = False
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
                says_connection = True
                if value not in PLAIN:
                    dropped |= nominated(value)
            elif kind == _ENCODING:
                # One encoding, said once: the parser knows of others that end a body otherwise.
                misframed = misframed or chunked or value.lower() != b"chunked"
                chunked = True
            elif kind == _EXPECT:
                expects_continue = value.lower() == b"100-continue"
            elif kind == _SECONDS:
                seconds = _seconds(value, seconds)
            elif kind == _STICKY:
                sticky = value or None
            elif kind == _PROXY_CONNECTION:
                says_connection = True
            elif kind == _UPGRADE:
                upgrades = True
        is_11 = spoken_version(parser) == "1.1"
        self.deadline = self.started + seconds  # As the caller says, or as the proxy does if that is shorter.
        self.passed = b"".join(without(passed, dropped) if dropped else passed)
        self.credential = credential
        self.expects_continue = expects_continue and is_11  # HTTP/1.0 knows no interim answers (RFC 9110, 15.2)
        self.sticky = sticky
        self.refusal = None
        if before > HALF_A_HEAD and sum(map(len, passed)) > MOST_HEAD_BYTES:
            self.refusal = too_long_a_head()
        elif hosts != 1 and is_11:
            self.refusal = Problem(ProblemType.MALFORMED, "A request has one Host header (RFC 9112, 3.2).")
        elif misframed:
            why = "A body has a Content-Length, or is sent in chunks, and nothing else."
            self.refusal = Problem(ProblemType.MALFORMED, why)
        elif credentials > 1:
            self.refusal = Problem(ProblemType.MALFORMED, TWO_CREDENTIALS)
        return says_connection, request_id, length, chunked, upgrades


def spoken_version(parser: httptools.HttpRequestParser) -> str:
    """Return the version of HTTP that a head is of; raises httptools.HttpParserError for one that is not spoken."""
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
    """Return what is told when a head has more than its bytes."""
    return Problem(ProblemType.HEADERS, f"A request may have {MOST_HEADERS} headers of {MOST_HEAD_BYTES} bytes.")


def not_parsed(error: Exception) -> Problem:
    """Return what is told where the parser stopped: what is no HTTP, or too long, is its caller's fault, all else ours.

    The parser has its own error for what the connection raised while it was told of a part.
    """
    why = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
    if isinstance(why, Problem):
        return why
    if isinstance(why, httptools.HttpParserError | httptools.HttpParserUpgrade | UnicodeDecodeError):
        return Problem(ProblemType.MALFORMED, "This is not HTTP/1.1 as RFC 9112 has it.")
    log.error("a request could not be taken in", exc_info=why or error)
    return Problem(ProblemType.INTERNAL, "It is in the proxy's log.")
