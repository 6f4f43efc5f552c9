"""A gRPC client that writes its frames by hand on a socket."""

import contextlib
import socket
import struct
from collections.abc import Iterator

import hpack
from tidegate_proxy.http2.frames import INITIAL_WINDOW_SIZE, LARGEST_WINDOW, PREFACE

from .harness import HOST, Rig

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
NO_ERROR, PROTOCOL, INTERNAL, FLOW, _, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION = range(10)
CALM = 11
INFER = "/inference.GRPCInferenceService/ModelInfer"


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def request(
    *more: tuple[str, str],
    path: str = INFER,
    without: str = "",
    method: str = "POST",
    encoder: hpack.Encoder | None = None,
) -> bytes:
    """Return a header block. With one `encoder` for all of a connection, repeated headers become short."""
    fields = [
        (":method", method), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]  # fmt: skip
    fields = [field for field in fields if field[0] != without] + list(more)
    return bytes((encoder or hpack.Encoder()).encode(fields))


# The largest windows of HTTP/2, so that only a caller that does not read causes a pause.
WIDE = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HL", INITIAL_WINDOW_SIZE, LARGEST_WINDOW))
WIDE += frame(WINDOW, 0, 0, struct.pack(">L", LARGEST_WINDOW - 65_535))


class Peer:
    """A connection. `frames` reads until it is closed or nothing arrives."""

    def __init__(self, running: Rig | int, hello: bytes = PREFACE + frame(SETTINGS)) -> None:
        self.sock = socket.socket()
        self.sock.connect((HOST, running if isinstance(running, int) else running.port))
        self.sock.settimeout(30)
        self.decoder = hpack.Decoder()
        self.rest = b""
        self.sock.sendall(hello)

    def send(self, *frames: bytes) -> "Peer":
        with contextlib.suppress(OSError):  # it may be closed already, but its data can still be read
            self.sock.sendall(b"".join(frames))
        return self

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        while True:
            while len(self.rest) >= 9 and len(self.rest) >= 9 + int.from_bytes(self.rest[:3]):
                length = int.from_bytes(self.rest[:3])
                found = self.rest[3], self.rest[4], int.from_bytes(self.rest[5:9]), self.rest[9 : 9 + length]
                self.rest = self.rest[9 + length :]
                yield found
            try:
                data = self.sock.recv(65_536)
            except ConnectionResetError:
                return
            if not data:
                return
            self.rest += data

    def next(self, kind: int) -> tuple[int, int, int, bytes]:
        return next(found for found in self.frames() if found[0] == kind)

    def farewell(self) -> int:
        payload = self.next(GOAWAY)[3]
        return int(struct.unpack_from(">LL", payload)[1])

    def headers_before_ping(self) -> dict[str, str]:
        """Return the headers before the response to a ping. By then the proxy has read all sent data."""
        self.send(frame(PING, 0, 0, b"12345678"))
        received: dict[str, str] = {}
        for kind, _, _, payload in self.frames():
            if kind == PING:
                break
            if kind == HEADERS:
                received |= {str(name): str(value) for name, value in self.decoder.decode(payload)}
        return received

    def headers(self) -> dict[str, str]:
        _, _, _, block = self.next(HEADERS)
        return {str(name): str(value) for name, value in self.decoder.decode(block)}

    def is_up(self) -> bool:
        self.send(frame(PING, 0, 0, b"12345678"))
        return self.next(PING)[3] == b"12345678"
