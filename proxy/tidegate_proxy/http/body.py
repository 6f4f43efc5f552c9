"""The body of a call over HTTP, in the form in which it is sent on."""


class RequestBody:
    """Parts that have come and were not sent on yet; a body in chunks goes on in chunks, each as large as can be."""

    # What most bodies never change costs them nothing here.
    received = 0
    """Bytes so far."""
    complete = False
    is_held = False
    """Whether no more of it is read for now."""
    gathered = 0
    """Bytes of it that the proxy's budget for whole bodies holds."""

    def __init__(self, length: int | None, chunked: bool) -> None:
        self.length = length
        self.chunked = chunked
        self.parts: list[bytes | bytearray | memoryview] = []
        if chunked:
            self.chunk = bytearray()
            """What goes on as one chunk, however small the caller's are."""

    def end_chunk(self) -> None:
        """Send what has come so far as one chunk."""
        if self.chunk:
            self.parts += (b"%x\r\n" % len(self.chunk), self.chunk, b"\r\n")
            self.chunk = bytearray()

    def end_chunks(self) -> None:
        """Send what has come so far as the last chunk."""
        self.end_chunk()
        self.parts.append(b"0\r\n\r\n")

    def whole(self) -> bytes | bytearray | memoryview:
        """Return all of a body that is complete, and of which nothing was sent."""
        if self.chunked:
            return self.parts[1] if len(self.parts) > 1 else b""  # the one chunk stands behind its size
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    def replace(self, data: memoryview) -> None:
        """Send this instead of what has come."""
        self.length, self.chunked = len(data), False
        self.parts = [data]

    def framing(self) -> bytes:
        """Return the header that says how it is sent, and the end of the head."""
        if self.chunked:
            return b"\r\ntransfer-encoding: chunked\r\n\r\n"
        if self.length is not None:
            return b"\r\ncontent-length: %d\r\n\r\n" % self.length
        return b"\r\n\r\n"
