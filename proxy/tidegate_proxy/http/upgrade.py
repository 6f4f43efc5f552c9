"""The rest of a connection on which a request wished for another protocol: the wish is passed over.

The parser stops after the head of such a request. So another one goes on: it is given a head that announces the same
body, which is not told of, and then what the caller sent after its own.
"""

from typing import Protocol


class ParserEvents(Protocol):
    """What a parser tells."""

    def on_message_begin(self) -> None:
        """A request begins."""

    def on_url(self, url: bytes) -> None:
        """A part of its address has come."""

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come."""

    def on_headers_complete(self) -> None:
        """Its head is whole."""

    def on_body(self, body: bytes) -> None:
        """A part of its body has come."""

    def on_message_complete(self) -> None:
        """It is whole."""


class PassedOver:
    """Passes a parser's events on, but for those of the first head."""

    def __init__(self, events: ParserEvents) -> None:
        self._events = events
        self._is_through = False
        self.on_body = events.on_body
        self.on_message_complete = events.on_message_complete

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._is_through:
            self._events.on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of its address has come."""
        if self._is_through:
            self._events.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come."""
        if self._is_through:
            self._events.on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head is whole."""
        if self._is_through:
            self._events.on_headers_complete()
        self._is_through = True


def framing(length: int, *, chunked: bool, keep_alive: bool) -> bytes:
    """Return a head that announces such a body, and whether another request may follow."""
    body = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % length
    return b"POST / HTTP/1.1\r\n%b\r\n%b\r\n" % (body, b"" if keep_alive else b"Connection: close\r\n")
