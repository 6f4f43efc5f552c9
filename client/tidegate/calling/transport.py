"""One request over HTTP, within its time: connections are kept, shared by threads, and checked before they are used."""

import io
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPResponse
from typing import Any, Final

import urllib3
from urllib3 import exceptions as http
from urllib3.connection import HTTPConnection, HTTPSConnection

from ..errors import UnreachableError, UsageError
from .replies import Reply

CA: Final = "TIDEGATE_PROXY_CA"  # a file of certificates that are believed besides the system's
_CONNECTIONS: Final = 64  # kept at most
_CONNECT_SECONDS: Final = 5.0
_PIECE: Final = 1 << 18
_JOINED: Final = 1 << 16  # bytes of a body up to which one copy costs less than sending its pieces one by one
_AHEAD: Final = 1 << 24  # bytes that are made room for on an answer's word alone
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
MOST_BYTES: Final = 1 << 31  # the longest answer that is taken
Body = Sequence[bytes | bytearray | memoryview]
"""A request's body, in pieces that are sent one after the other, without being joined."""


class NotSentError(UnreachableError):
    """No connection was made, so that nothing was done."""


class TimeIsUpError(UnreachableError):
    """There was no answer within the time; the work may have been done."""


class _Timed(io.RawIOBase):
    """Reads what a socket gives, by a time: a socket's own begins anew with each byte that drips in."""

    def __init__(self, raw: io.RawIOBase, opened: socket.socket, end: float) -> None:
        self._raw, self._socket = raw, opened
        self.end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """An HTTP response whose head is due at `end`, and each piece of its body at the time that `timed` is given."""

    def __init__(self, opened: socket.socket, *args: Any, end: float, **more: Any) -> None:
        super().__init__(opened, *args, **more)
        self.timed = _Timed(self.fp.detach(), opened, end)
        self.fp = io.BufferedReader(self.timed)


class _Connection(HTTPConnection):
    """Connects within a bound, and then sends in the time that the request has: urllib3 has one for both."""

    _end = 0.0

    def request(self, *args: Any, **more: Any) -> None:
        """Send a request by the time that `timeout` says from now."""
        assert isinstance(self.timeout, float | int)
        self._end = time.monotonic() + self.timeout
        super().request(*args, **more)

    def getresponse(self) -> Any:
        """Return the answer, once its head is there."""
        self.response_class = partial(_Response, end=self._end)  # type: ignore[assignment]
        return super().getresponse()

    def send(self, data: Any) -> None:
        """Send a piece, after connecting where that is still to be done."""
        if self.sock is None:
            self.connect()
        self.sock.settimeout(max(self._end - time.monotonic(), 0.001))
        super().send(data)

    def _new_conn(self) -> socket.socket:
        whole = self.timeout
        assert isinstance(whole, float | int)
        self.timeout = min(whole, _CONNECT_SECONDS)
        try:
            return super()._new_conn()
        finally:
            self.timeout = whole


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class Transport:
    """Talks to one address; made for threads."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet; raises UsageError where TIDEGATE_PROXY_CA cannot be read."""
        self.url = url
        parts = urllib3.util.parse_url(url)
        self._path = (parts.path or "").rstrip("/")
        more: dict[str, Any] = {"ssl_context": _context()} if parts.scheme == "https" else {}
        self._pool = urllib3.connectionpool.connection_from_url(url, maxsize=_CONNECTIONS, block=False, **more)
        self._pool.ConnectionCls = _TlsConnection if more else _Connection

    def close(self) -> None:
        """Close what is kept."""
        self._pool.close()

    def ask(self, method: str, path: str, body: Body, headers: Mapping[str, str], end: float) -> Reply:
        """Return the whole answer, whatever its status, by `end` (of the monotonic clock).

        Raises NotSentError, TimeIsUpError, UnreachableError.
        """
        with self._open(method, path, body, headers, end) as response:
            return self._whole(response, path, end)

    @contextmanager
    def stream(
        self, method: str, path: str, body: Body, headers: Mapping[str, str], end: float, idle: float = 0
    ) -> Iterator[tuple[Reply, Iterator[bytes]]]:
        """Give the answer's head, and its body as it comes; only a 200 is streamed. Raises as `ask` does.

        With `idle`, it ends when nothing has come for so many seconds, and `end` is that of the head.
        """
        with self._open(method, path, body, headers, end) as response:
            if response.status != 200:
                yield self._whole(response, path, end), iter(())
                return
            yield Reply(response.status, _headers(response), b""), self._pieces(response, path, end, idle)

    # ---
    @contextmanager
    def _open(
        self, method: str, path: str, body: Body, headers: Mapping[str, str], end: float
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        left = end - time.monotonic()
        if left <= 0:
            raise self._late(path)
        said = dict(headers)
        if body or method == "POST":
            length = sum(len(piece) for piece in body)
            said["Content-Length"] = str(length)
            if length <= _JOINED:
                body = [b"".join(body)]
        try:
            response = self._pool.urlopen(
                method, self._path + path, headers=said, timeout=urllib3.Timeout(total=left),
                body=body or None,  # type: ignore[arg-type]  # pieces of any kind are sent as they are
                retries=False, redirect=False, assert_same_host=False, preload_content=False, decode_content=False,
            )  # fmt: skip
        except http.HTTPError as error:
            raise self._error(error, path) from None
        whole = False
        try:
            yield response
            whole = True
        finally:
            if not whole:
                response.close()  # a connection with half an answer in it cannot be used again
            response.release_conn()

    def _whole(self, response: urllib3.BaseHTTPResponse, path: str, end: float) -> Reply:
        length = response.headers.get("content-length", "")
        headers = _headers(response)
        if not _LENGTH.fullmatch(length):
            return Reply(response.status, headers, b"".join(self._pieces(response, path, end)))
        if int(length) > MOST_BYTES:
            raise UnreachableError(f"the answer has more than {MOST_BYTES} bytes", where=self.url + path)
        body = bytearray(min(int(length), _AHEAD))  # it grows beyond that, as more comes
        filled = 0
        for piece in self._pieces(response, path, end):
            body[filled : filled + len(piece)] = piece
            filled += len(piece)
        return Reply(response.status, headers, body)

    def _pieces(self, response: urllib3.BaseHTTPResponse, path: str, end: float, idle: float = 0) -> Iterator[bytes]:
        """Give the body in pieces as they come; the time is looked at between them, for a slow one resets no clock."""
        try:
            total = 0
            while True:
                if not idle and time.monotonic() >= end:
                    raise self._late(path)
                if (received := getattr(response, "_original_response", None)) is not None:  # None: all is there
                    received.timed.end = time.monotonic() + idle if idle else end
                if not (piece := response.read1(_PIECE)):
                    return
                total += len(piece)
                if total > MOST_BYTES:
                    raise UnreachableError(f"the answer has more than {MOST_BYTES} bytes", where=self.url + path)
                yield piece
        except http.HTTPError as error:
            raise self._error(error, path) from None

    def _error(self, error: http.HTTPError, path: str) -> UnreachableError:
        where = self.url + path
        why = _reason(error)
        if isinstance(error, http.SSLError):
            what = "the proxy's certificate is not believed, or it does not speak TLS"
            do = f"set {CA} to the file of the authority that vouches for it; where it has no TLS, write http://"
            return UnreachableError(what, where=where, why=why, do=do)
        if isinstance(error, http.NameResolutionError):
            do = "see whether this address is right (DOMINO_INFERENCE_PROXY, or `proxyUrl` in environments.json)"
            return NotSentError("there is no host of this name", where=where, do=do)
        if isinstance(error, http.NewConnectionError | http.ConnectTimeoutError):
            do = "see whether the address is right; where the proxy has no TLS, write http://"
            return NotSentError("the proxy cannot be reached", where=where, why=why, do=do)
        if isinstance(error, http.TimeoutError) or any(isinstance(each, TimeoutError) for each in error.args):
            return self._late(path)
        return UnreachableError("the connection to the proxy was cut", where=where, why=why, do="try again")

    def _late(self, path: str) -> TimeIsUpError:
        return TimeIsUpError("there was no answer in time", where=self.url + path, do="wait longer, or try again later")


def _headers(response: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _reason(error: BaseException) -> str:
    """Return the innermost reason, without the objects that urllib3 names."""
    inner: BaseException = error
    while (cause := inner.__cause__ or inner.__context__) is not None:
        inner = cause
    if isinstance(inner, TimeoutError):
        return "nothing answers there"
    if isinstance(inner, ssl.SSLError):
        return getattr(inner, "verify_message", "") or inner.reason or "TLS failed"
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner.args[0]) if inner.args and isinstance(inner.args[0], str) else type(inner).__name__


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if file := os.environ.get(CA):
        try:
            context.load_verify_locations(cafile=file)
        except (OSError, ssl.SSLError) as error:
            why = getattr(error, "strerror", None) or "it holds no certificate in PEM"
            raise UsageError("the proxy's authority cannot be read", where=f"{CA} ({file})", why=why) from None
    return context
