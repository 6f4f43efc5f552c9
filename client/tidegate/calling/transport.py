"""One request over HTTP, within its time: connections are kept, shared by threads, and checked before they are used."""

import io
import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, Final
from urllib.parse import urlsplit

from ..errors import UnreachableError, UsageError
from .replies import Reply

CA: Final = "TIDEGATE_PROXY_CA"
"""A file of certificates that are believed besides the system's."""
_CONNECTIONS: Final = 64
"""Kept at most."""
_CONNECT_SECONDS: Final = 5.0
_PIECE: Final = 1 << 18
_JOINED: Final = 1 << 16
"""Bytes of a body up to which one copy costs less than sending its pieces one by one."""
_AHEAD: Final = 1 << 24
"""Bytes that are made room for on an answer's word alone."""
MOST_BYTES: Final = 1 << 31
"""The longest answer that is taken."""
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
        _limit(self._socket, self.end)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """Has its head by a time, and each piece of its body by the time that `timed` is given."""

    def __init__(self, opened: socket.socket, *args: Any, end: float, **more: Any) -> None:
        super().__init__(opened, *args, **more)
        self.timed = _Timed(self.fp.detach(), opened, end)
        self.fp = io.BufferedReader(self.timed)


class Transport:
    """Talks to one address; made for threads."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet; raises UsageError where TIDEGATE_PROXY_CA cannot be read."""
        self.url = url
        parts = urlsplit(url)
        self._at, self._path = (parts.hostname or "", parts.port), parts.path.rstrip("/")
        self._tls = _context() if parts.scheme == "https" else None
        self._idle: deque[HTTPConnection] = deque(maxlen=_CONNECTIONS)

    def close(self) -> None:
        """Close what is kept."""
        while self._idle:
            self._idle.pop().close()

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
    def _open(self, method: str, path: str, body: Body, headers: Mapping[str, str], end: float) -> Iterator[_Response]:
        said = {"Accept-Encoding": "identity", **headers}
        if body or method == "POST":
            length = sum(len(piece) for piece in body)
            said["Content-Length"] = str(length)
            if length <= _JOINED:
                body = [b"".join(body)]
        with self._told(path):
            connection = self._connection(path, end)
            try:
                _limit(connection.sock, end)
                connection.request(method, self._path + path, headers=said)
                for piece in body:
                    _limit(connection.sock, end)
                    connection.send(piece)
                connection.response_class = partial(_Response, end=end)  # type: ignore[assignment]
                response: Any = connection.getresponse()
                yield response
            except BaseException:
                connection.close()  # with half an answer in it, it cannot be used again
                raise
        if response.isclosed() and connection.sock is not None and len(self._idle) < _CONNECTIONS:
            self._idle.append(connection)
        else:
            connection.close()

    def _connection(self, path: str, end: float) -> HTTPConnection:
        """Return a kept connection that the other side has not ended, or a new one."""
        with suppress(IndexError):
            while True:
                kept = self._idle.pop()
                poll = select.poll()
                poll.register(kept.sock, select.POLLIN)
                if not poll.poll(0):
                    return kept
                kept.close()
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        (host, port), seconds = self._at, min(left, _CONNECT_SECONDS)
        made = HTTPConnection(host, port, timeout=seconds)
        if self._tls is not None:
            made = HTTPSConnection(host, port, timeout=seconds, context=self._tls)
        where = self.url + path
        try:
            made.connect()
        except socket.gaierror:
            do = "see whether DOMINO_INFERENCE_PROXY is right, and can be reached from here"
            raise NotSentError("there is no host of this name", where=where, do=do) from None
        except ssl.SSLError as error:
            what = "the proxy's certificate is not believed, or it does not speak TLS"
            do = f"set {CA} to the file of the authority that vouches for it; where it has no TLS, write http://"
            why = getattr(error, "verify_message", "") or error.reason or "TLS failed"
            raise UnreachableError(what, where=where, why=why, do=do) from None
        except OSError as error:
            why = "nothing answers there" if isinstance(error, TimeoutError) else error.strerror or str(error)
            do = "see whether the address is right; where the proxy has no TLS, write http://"
            raise NotSentError("the proxy cannot be reached", where=where, why=why, do=do) from None
        return made

    def _whole(self, response: _Response, path: str, end: float) -> Reply:
        headers, length = _headers(response), response.length
        if length is None:
            return Reply(response.status, headers, b"".join(self._pieces(response, path, end)))
        if length > MOST_BYTES:
            raise UnreachableError(f"the answer has more than {MOST_BYTES} bytes", where=self.url + path)
        body = bytearray(min(length, _AHEAD))  # it grows beyond that, as more comes
        filled = 0
        for piece in self._pieces(response, path, end):
            body[filled : filled + len(piece)] = piece
            filled += len(piece)
        return Reply(response.status, headers, body)

    def _pieces(self, response: _Response, path: str, end: float, idle: float = 0) -> Iterator[bytes]:
        """Give the body in pieces as they come; the time is looked at between them, for a slow one resets no clock."""
        with self._told(path):
            total = 0
            while True:
                response.timed.end = time.monotonic() + idle if idle else end
                if time.monotonic() >= response.timed.end:
                    raise TimeoutError
                if not (piece := response.read1(_PIECE)):
                    break
                total += len(piece)
                if total > MOST_BYTES:
                    raise UnreachableError(f"the answer has more than {MOST_BYTES} bytes", where=self.url + path)
                yield piece
            if response.length:
                raise IncompleteRead(b"", response.length)
            response.close()

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """Turn what goes wrong once there is a connection into errors of ours."""
        where = self.url + path
        try:
            yield
        except TimeoutError:
            do = "wait longer, or try again later"
            raise TimeIsUpError("there was no answer in time", where=where, do=do) from None
        except (OSError, HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UnreachableError(
                "the connection to the proxy was cut", where=where, why=why, do="try again"
            ) from None


def _limit(opened: socket.socket, end: float) -> None:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    opened.settimeout(left)


def _headers(response: _Response) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if file := os.environ.get(CA):
        try:
            context.load_verify_locations(cafile=file)
        except (OSError, ssl.SSLError) as error:
            why = getattr(error, "strerror", None) or "it holds no certificate in PEM"
            raise UsageError("the proxy's authority cannot be read", where=f"{CA} ({file})", why=why) from None
    return context
