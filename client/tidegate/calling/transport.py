"""One request over HTTP, within its time: connections are kept, and shared by threads."""

import os
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import urllib3
from urllib3 import exceptions as http

from ..errors import UnreachableError, UsageError
from .replies import Reply

CA: Final = "TIDEGATE_PROXY_CA"  # a file of certificates that are believed besides the system's
_CONNECTIONS: Final = 64  # kept at most
_PIECE: Final = 1 << 18
_JOINED: Final = 1 << 16  # bytes of a body up to which one copy costs less than sending its pieces one by one
MOST_BYTES: Final = 1 << 31  # the longest answer that is taken
Body = Sequence[bytes | bytearray | memoryview]
"""A request's body, in pieces that are sent one after the other, without being joined."""


class NotSentError(UnreachableError):
    """No connection was made, so that nothing was done."""


class TimeIsUpError(UnreachableError):
    """There was no answer within the time; the work may have been done."""


class Transport:
    """Talks to one address; made for threads."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet; raises UsageError where TIDEGATE_PROXY_CA cannot be read."""
        self.url = url
        parts = urllib3.util.parse_url(url)
        self._path = (parts.path or "").rstrip("/")
        more: dict[str, Any] = {"ssl_context": _context()} if parts.scheme == "https" else {}
        self._pool = urllib3.connectionpool.connection_from_url(url, maxsize=_CONNECTIONS, block=False, **more)

    def close(self) -> None:
        """Close what is kept."""
        self._pool.close()

    def ask(self, method: str, path: str, body: Body, headers: Mapping[str, str], end: float) -> Reply:
        """Return the whole answer, whatever its status, by `end` (of the monotonic clock).

        Raises NotSentError, TimeIsUpError, UnreachableError.
        """
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
        content, is_whole = bytearray(), False  # writable, as the arrays are that are made of it
        try:
            while time.monotonic() < end:  # a slow answer resets no clock
                if max(len(content), response.length_remaining or 0) > MOST_BYTES:
                    raise UnreachableError(f"the answer has more than {MOST_BYTES} bytes", where=self.url + path)
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
                response.close()  # a connection with half an answer in it cannot be used again
            response.release_conn()

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
