"""The head of a call over HTTP: what it asks, how its body is sent, and which headers go on to the replica."""

from collections.abc import Sequence
from dataclasses import dataclass

import httptools
from tidegate_contracts import triton

from ..headers import PLAIN, is_request_id, nominated, without
from ..problems import TWO_CREDENTIALS, Problem, ProblemType
from ..targets import Target

MOST_HEAD_BYTES = 64 * 1024  # Bytes of a request's first line and headers.

(
    _PASS, _DROP, _AUTHORIZATION, _KEY, _LENGTH, _ENCODING, _EXPECT, _REQUEST_ID, _SECONDS, _STICKY, _HOST, _CONNECTION,
    _UPGRADE,
) = range(13)  # fmt: skip
_HEADERS = {
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
    b"proxy-connection": _DROP,
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
_HEADERS |= {name.title(): kind for name, kind in _HEADERS.items()}


@dataclass(slots=True, eq=False, repr=False)
class HttpHead:
    """What a call says before its body."""

    target: Target
    method: bytes
    http_11: bool
    keep_alive: bool
    seconds: float  # How long the caller waits: as it says, or as the proxy does if that is shorter.
    passed: bytes = b""  # Header lines that go on to the replica.
    credential: bytes = b""
    length: int | None = None  # Bytes of the body, where the request says it.
    chunked: bool = False
    expects_continue: bool = False
    upgrades: bool = False  # Whether it wishes for another protocol.
    sticky: bytes | None = None  # Requests with the same value get the same version of a model.
    request_id: bytes = b""  # The caller's own, or nothing.
    refusal: Problem | None = None  # Why it is no request that can be answered.


def read_head(
    target: Target,
    headers: Sequence[tuple[bytes, bytes]],
    parser: httptools.HttpRequestParser,
    seconds: float,
    is_long: bool,
) -> HttpHead:
    """Return what a head says; `is_long` where it may have more bytes than are taken, `seconds` as the proxy waits."""
    http_11 = parser.get_http_version() == "1.1"
    head = HttpHead(target, parser.get_method(), http_11, http_11 and parser.should_keep_alive(), seconds)
    passed: list[bytes] = []
    hosts = credentials = 0
    misframed = False
    dropped: frozenset[bytes] = frozenset()
    for name, value in headers:
        kind = _HEADERS.get(name)
        if kind is None:
            kind = _HEADERS.get(name.lower(), _PASS)
        if kind == _PASS:
            passed += (name, b": ", value, b"\r\n")
        elif kind == _LENGTH:
            head.length = int(value)
        elif kind == _HOST:
            hosts += 1
        elif kind == _AUTHORIZATION:
            credentials += 1
            head.credential = value
        elif kind == _REQUEST_ID:
            if is_request_id(value):
                head.request_id = value
        elif kind == _KEY:
            credentials += 1
            head.credential = name.lower() + b" " + value
        elif kind == _CONNECTION:
            if value not in PLAIN:
                dropped |= nominated(value)
        elif kind == _ENCODING:
            # One encoding, said once: the parser knows of others that end a body otherwise.
            misframed = misframed or head.chunked or value.lower() != b"chunked"
            head.chunked = True
        elif kind == _EXPECT:
            head.expects_continue = value.lower() == b"100-continue"
        elif kind == _SECONDS:
            head.seconds = _seconds(value, head.seconds)
        elif kind == _STICKY:
            head.sticky = value or None
        elif kind == _UPGRADE:
            head.upgrades = True
    head.passed = b"".join(without(passed, dropped) if dropped else passed)
    if is_long and sum(map(len, passed)) > MOST_HEAD_BYTES:
        head.refusal = too_long_a_head()
    elif hosts != 1 and http_11:
        head.refusal = Problem(ProblemType.MALFORMED, "A request has one Host header (RFC 9112, 3.2).")
    elif misframed:
        why = "A body has a Content-Length, or is sent in chunks, and nothing else."
        head.refusal = Problem(ProblemType.MALFORMED, why)
    elif credentials > 1:
        head.refusal = Problem(ProblemType.MALFORMED, TWO_CREDENTIALS)
    return head


def _seconds(value: bytes, most: float) -> float:
    try:
        seconds = float(value)
    except ValueError:
        return most
    return min(most, seconds) if seconds > 0 else most


def too_long_a_head() -> Problem:
    """Return what is told when a head has more than its bytes."""
    return Problem(ProblemType.HEADERS, f"A request's headers may have {MOST_HEAD_BYTES} bytes.")
