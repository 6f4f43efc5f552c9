"""Reads the heads of callers' requests: what is asked, by whom, and which headers go on to the replica."""

import asyncio

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ..hops import PLAIN, nominated, without
from ..paths import LONGEST, Target, origin_form, understand
from ..problems import TWO_CREDENTIALS, Kind, Problem
from ..request_ids import is_request_id
from ..shared_state import SharedState
from .head import Head

MOST_HEAD_BYTES = 64 * 1024
"""Bytes of a request's first line and headers."""
MOST_KNOWN_TARGETS = 20_000

(
    _PASS, _DROP, _AUTHORIZATION, _KEY, _LENGTH, _ENCODING, _EXPECT, _REQUEST_ID, _SECONDS, _STICKY, _HOST, _CONNECTION,
) = range(12)  # fmt: skip
SECONDS_HEADER = b"request-timeout"
"""Seconds that the caller waits for an answer; a shorter time than the proxy's own counts."""
STICKY_HEADER = b"tidegate-sticky"
"""Requests with the same value get the same version of a model."""
_KINDS = {
    b"authorization": _AUTHORIZATION,
    b"x-api-key": _KEY,
    b"x-domino-api-key": _KEY,
    b"content-length": _LENGTH,
    b"transfer-encoding": _ENCODING,
    b"expect": _EXPECT,
    b"x-request-id": _REQUEST_ID,
    SECONDS_HEADER: _SECONDS,
    STICKY_HEADER: _STICKY,
    # Of this connection alone, or nobody's business but the proxy's.
    b"connection": _CONNECTION,
    b"keep-alive": _DROP,
    b"proxy-connection": _DROP,
    b"proxy-authorization": _DROP,
    b"te": _DROP,
    b"trailer": _DROP,
    b"upgrade": _DROP,
    b"http2-settings": _DROP,
    b"host": _HOST,
    b"cookie": _DROP,
    # Triton's restricted protocols are opened by this header: no caller's ever reaches it.
    b"tidegate-control": _DROP,
}
_KINDS |= {name.title(): kind for name, kind in _KINDS.items()}


class Reader(HttpToolsProtocol):
    """The part of a connection that takes in one head after the other; the parser calls it."""

    def __init__(
        self, shared: SharedState, targets: dict[bytes, Target | None], config: Config, state: ServerState
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.shared = shared
        self._targets = targets
        self._long = False
        """Whether more came at once than a head may have."""
        self._decided = False
        """Whether it is known what is asked."""
        self._target: Target | None = None
        """What is asked of a model; None is the application's."""
        self._hosts = 0
        self._credentials = 0
        self._strange = False
        self._passed: list[bytes] = []
        self._credential = b""
        self._length: int | None = None
        self._chunked = False
        self._expects_continue = False
        self._request_id = b""
        self._seconds = 0.0
        self._sticky: bytes | None = None
        self._nominated: frozenset[bytes] = frozenset()
        """Headers that are of this connection alone, for the request says so."""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if not self._decided:
            self._decide()
        if self._target is None:
            super().on_header(name, value)
            return
        kind = _KINDS.get(name)
        if kind is None:
            kind = _KINDS.get(name.lower(), _PASS)
        if kind == _PASS:
            self._passed += (name, b": ", value, b"\r\n")
        elif kind == _LENGTH:
            self._length = int(value)
        elif kind == _HOST:
            self._hosts += 1
        elif kind == _AUTHORIZATION:
            self._credentials += 1
            self._credential = value
        elif kind == _KEY:
            self._credentials += 1
            self._credential = name.lower() + b" " + value
        elif kind == _ENCODING:
            # One encoding, said once: the parser knows of others that end a body otherwise.
            self._strange = self._strange or self._chunked or value.lower() != b"chunked"
            self._chunked = True
        elif kind == _EXPECT:
            self._expects_continue = value.lower() == b"100-continue"
        elif kind == _REQUEST_ID:
            if is_request_id(value):
                self._request_id = value
        elif kind == _SECONDS:
            self._read_seconds(value)
        elif kind == _STICKY:
            self._sticky = value or None
        elif kind == _CONNECTION and value not in PLAIN:
            self._nominated |= nominated(value)

    def _decide(self) -> None:
        self._decided = True
        url = self.url
        try:
            target = self._targets[url]
        except KeyError:
            target = understand(origin_form(url))
            if target is not None and len(url) <= LONGEST:
                if len(self._targets) >= MOST_KNOWN_TARGETS:
                    self._targets.clear()
                self._targets[url] = target
        self._target = target
        if target is None:
            super().on_message_begin()
            self.url = url
            return
        self._passed = []
        self._credential = b""
        self._length = None
        self._chunked = False
        self._expects_continue = False
        self._hosts = self._credentials = 0
        self._strange = False
        self._request_id = b""
        self._seconds = float(self.shared.settings.request_timeout_seconds)
        self._sticky = None
        self._nominated = frozenset()

    def _read_seconds(self, value: bytes) -> None:
        try:
            seconds = float(value)
        except ValueError:
            return
        if seconds > 0:
            self._seconds = min(self._seconds, seconds)

    def _understood(self, target: Target) -> Head:
        http_11 = self.parser.get_http_version() == "1.1"
        refusal = None
        if self._hosts != 1 and http_11:
            refusal = "A request has one Host header (RFC 9112, 3.2)."
        elif self._strange:
            refusal = "A body has a Content-Length, or is sent in chunks, and nothing else."
        elif self._credentials > 1:
            refusal = TWO_CREDENTIALS
        problem = Problem(Kind.MALFORMED, refusal) if refusal else None
        if self._long and sum(map(len, self._passed)) > MOST_HEAD_BYTES:
            problem = too_long_a_head()
        return Head(
            target=target,
            method=self.parser.get_method(),
            passed=b"".join(without(self._passed, self._nominated) if self._nominated else self._passed),
            credential=self._credential,
            length=self._length,
            chunked=self._chunked,
            expects_continue=self._expects_continue,
            sticky=self._sticky,
            request_id=self._request_id,
            seconds=self._seconds,
            http_11=http_11,
            keep_alive=http_11 and self.parser.should_keep_alive(),
            refusal=problem,
        )


def too_long_a_head() -> Problem:
    """Return what is told when a head has more than its bytes."""
    return Problem(Kind.HEADERS, f"A request's headers may have {MOST_HEAD_BYTES} bytes.")
