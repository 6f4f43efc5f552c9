"""Sends one HTTP request within a deadline. Connections are reused and shared by threads."""

import os
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import urllib3
from urllib3 import exceptions as http

from ..errors import UnreachableError, UsageError
from .replies import Reply

CA: Final = "TIDEGATE_PROXY_CA"  # a file of certificates to trust, in addition to the system's
_CONNECTIONS: Final = 64  # kept open at most
_PIECE: Final = 1 << 18
_JOINED: Final = 1 << 16  # Up to this many bytes, one copy costs less than sending the pieces of a body one by one.
MOST_BYTES: Final = 1 << 31  # limit of a response
Body = Sequence[bytes | bytearray | memoryview]
"""A request's body in pieces, which are sent one after the other without being joined."""


class NotSentError(UnreachableError):
    """No connection was made, so the request had no effect."""


class TimeIsUpError(UnreachableError):
    """The request timed out. The work may have been done."""


class Transport:
    """Sends requests to one address. Safe for several threads."""

    def __init__(self, url: str) -> None:
        """Open no connection yet. Raises UsageError if TIDEGATE_PROXY_CA cannot be read."""
        self.url = url
        parts = urllib3.util.parse_url(url)
        self._path = (parts.path or "").rstrip("/")
        more: dict[str, Any] = {"ssl_context": _context()} if parts.scheme == "https" else {}
        self._pool = urllib3.connectionpool.connection_from_url(url, maxsize=_CONNECTIONS, block=False, **more)

    def close(self) -> None:
        self._pool.close()

    def ask(self, method: str, path: str, body: Body, headers: Mapping[str, str], end: float) -> Reply:
        """Return the whole response, whatever its status, by `end` (monotonic clock). Raises NotSentError,
        TimeIsUpError, UnreachableError."""
        left = end - time.monotonic()
        if left <= 0:
            raise self._late(path)
        sent = dict(headers)
        if body or method == "POST":
            length = sum(len(piece) for piece in body)
            sent["Content-Length"] = str(length)
            if length <= _JOINED:
                body = [b"".join(body)]
        try:
            response = self._pool.urlopen(
                method, self._path + path, headers=sent, timeout=urllib3.Timeout(connect=left, read=left),
                body=body or None,  # type: ignore[arg-type]  # pieces of any kind are sent as they are
                retries=False, redirect=False, assert_same_host=False, preload_content=False, decode_content=False,
            )  # fmt: skip
        except http.HTTPError as error:
            raise self._error(error, path) from None
        content, is_whole = bytearray(), False  # writable, because arrays share its memory
        try:
            while time.monotonic() < end:  # a slow response does not extend the deadline
                if max(len(content), response.length_remaining or 0) > MOST_BYTES:
                    raise UnreachableError(f"the response exceeds {MOST_BYTES} bytes", where=self.url + path)
                if not (piece := response.read1(_PIECE)):
                    is_whole = True
                    headers = {name.lower(): value for name, value in response.headers.items()}
                    return Reply(response.status, headers, content)
                content += piece
            raise self._late(path)
        except http.HTTPError as error:
            raise self._error(error, path) from None
        finally:
            if not is_whole:
                response.close()  # a connection with half a response cannot be reused
            response.release_conn()

    def _error(self, error: http.HTTPError, path: str) -> UnreachableError:
        where = self.url + path
        why = _reason(error)
        if isinstance(error, http.SSLError):
            what = "the proxy's certificate is not trusted, or the proxy does not use TLS"
            do = f"set {CA} to the certificate file of the proxy's authority. If the proxy has no TLS, write http://"
            return UnreachableError(what, where=where, why=why, do=do)
        if isinstance(error, http.NameResolutionError):
            do = "check the address (DOMINO_INFERENCE_PROXY, or `proxyUrl` in environments.json)"
            return NotSentError("the host name cannot be resolved", where=where, do=do)
        if isinstance(error, http.NewConnectionError | http.ConnectTimeoutError):
            do = "check the address. If the proxy has no TLS, write http://"
            return NotSentError("the proxy cannot be reached", where=where, why=why, do=do)
        if isinstance(error, http.TimeoutError) or any(isinstance(each, TimeoutError) for each in error.args):
            return self._late(path)
        return UnreachableError("the connection to the proxy was interrupted", where=where, why=why, do="try again")

    def _late(self, path: str) -> TimeIsUpError:
        do = "set a longer timeout, or try again later"
        return TimeIsUpError("the request timed out", where=self.url + path, do=do)


def _reason(error: BaseException) -> str:
    """Return the innermost cause, without the objects that urllib3 names."""
    inner: BaseException = error
    while (cause := inner.__cause__ or inner.__context__) is not None:
        inner = cause
    if isinstance(inner, TimeoutError):
        return "nothing responds there"
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
            why = getattr(error, "strerror", None) or "it contains no certificate in PEM format"
            raise UsageError("the file of trusted certificates is unusable", where=f"{CA} ({file})", why=why) from None
    return context
