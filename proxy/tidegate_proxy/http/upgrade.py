"""The rest of a connection on which a request wished for another protocol: the wish is passed over.

The parser stops after the head of such a request. So another one goes on: it is given a head that announces the same
body, which is not told of, and then what the caller sent after its own.
"""

from collections.abc import Callable
from typing import Any


class SkipFirstHead:
    """Hides the first head from the connection, and forwards every later parser event."""

    def __init__(self, connection: Any) -> None:
        self._is_through = False
        self._head_complete = connection.on_headers_complete
        self.on_message_begin = self._later(connection.on_message_begin)
        self.on_url = self._later(connection.on_url)
        self.on_header = self._later(connection.on_header)
        self.on_body = connection.on_body
        self.on_chunk_header = connection.on_chunk_header
        self.on_message_complete = connection.on_message_complete

    def _later(self, event: Callable[..., None]) -> Callable[..., None]:
        def passed_on(*told: bytes) -> None:
            if self._is_through:
                event(*told)

        return passed_on

    def on_headers_complete(self) -> None:
        """Note that a head is whole; the first one is hidden."""
        if self._is_through:
            self._head_complete()
        self._is_through = True


def framing(length: int, *, chunked: bool, keep_alive: bool) -> bytes:
    """Return a head that announces such a body, and whether another request may follow."""
    body = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % length
    return b"POST / HTTP/1.1\r\n%b\r\n%b\r\n" % (body, b"" if keep_alive else b"Connection: close\r\n")
