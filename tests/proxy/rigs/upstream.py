"""A scripted upstream that misbehaves: it stands for a server that is broken, slow, or going away."""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tidegate_contracts.triton import LIVE_PATH

from lab.local_plane.process import HOST

_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER with 0 s: closing sends a reset.


class GoneError(Exception):
    """The caller has closed the connection."""


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict[str, str]  # By lower-case name.
    body: bytes

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


@dataclass
class Caller:
    request: Request
    connection: "_Connection"

    def send(self, *parts: bytes) -> None:
        """Send exactly these bytes. Raises GoneError."""
        try:
            self.connection.wfile.write(b"".join(parts))
        except (OSError, ValueError):  # ValueError: it is closed
            raise GoneError from None

    def answer(self, body: bytes = b"{}", status: int = 200, kind: str = "application/json", **headers: str) -> None:
        """Send a complete response. Header names have underscores instead of hyphens."""
        self.send(head(status, kind, str(len(body)), **headers), body)

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, until the caller disconnects (GoneError), or until the upstream stops."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.connection.server.running.stopped.wait(min(left, 0.02)) or self.gone():
                raise GoneError

    def gone(self) -> bool:
        try:
            return not self.connection.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def reset(self) -> None:
        self.connection.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self.close()

    def close(self) -> None:
        self.connection.close_connection = True
        self.connection.rfile.close()  # otherwise it keeps the socket open
        self.connection.connection.close()


def head(status: int, kind: str = "", length: str | None = None, **headers: str) -> bytes:
    """Return the head of a response. Without a length the response is chunked."""
    fields = {
        **({"Content-Type": kind} if kind else {}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    fields |= {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": length}
    lines = [f"HTTP/1.1 {status} Answer", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


Behaviour = Callable[[Caller], None]
well, reset, close = Caller.answer, Caller.reset, Caller.close


def hang(caller: Caller) -> None:
    caller.wait(3600)


def cut_short(*parts: bytes, end: Behaviour = close) -> Behaviour:
    """Answer with exactly these bytes, and end the connection like this."""

    def behave(caller: Caller) -> None:
        caller.send(*parts)
        time.sleep(0.05)  # a reset would overtake the data
        end(caller)

    return behave


half = cut_short(head(200, "application/json", "100"), b"x" * 50)
half_then_reset = cut_short(head(200, "application/json", "100"), b"x" * 50, end=reset)
half_a_head = cut_short(b"HTTP/1.1 200 OK\r\nContent-Le")
nonsense = cut_short(b"\x00\x01 this is no HTTP\r\n\r\n")
truncated_chunks = cut_short(head(200, "application/json", None), b"5\r\nhello\r\n10\r\nhalf")


def drip(body: bytes, seconds: float) -> Behaviour:
    def behave(caller: Caller) -> None:
        caller.send(head(200, "application/json", str(len(body))))
        for number in range(len(body)):
            caller.send(body[number : number + 1])
            caller.wait(seconds)

    return behave


def events(*events: str, seconds: float = 0.0, cut: bool = False) -> Behaviour:
    """Answer with server-sent events at this interval. At the end, end the response or cut the connection."""

    def behave(caller: Caller) -> None:
        caller.send(head(200, "text/event-stream", None))
        for event in events:
            data = f"data: {event}\n\n".encode()
            caller.send(f"{len(data):x}\r\n".encode(), data, b"\r\n")
            caller.wait(seconds)
        if cut:
            time.sleep(0.05)
            caller.reset()
        else:
            caller.send(b"0\r\n\r\n")

    return behave


def by_turns(*behaviours: Behaviour) -> Behaviour:
    """Use one behaviour per request, in this order, and the last one for all further requests."""
    left = list(behaviours)
    lock = threading.Lock()

    def behave(caller: Caller) -> None:
        with lock:
            now = left.pop(0) if len(left) > 1 else left[0]
        now(caller)

    return behave


@dataclass
class Upstream:
    port: int
    behave: Behaviour = well  # Handles a request. Can be replaced at any time.
    requests: list[Request] = field(default_factory=list)
    left: list[Request] = field(default_factory=list)  # Requests whose caller disconnected before the response's end.
    connections: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def http(self) -> str:
        return f"{HOST}:{self.port}"

    def wait_for(self, number: int, of: Sequence[Request] | None = None, seconds: float = 10.0) -> None:
        """Wait until there are `number` requests, or abandoned requests with `of=left`. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while len(self.requests if of is None else of) < number:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self.requests)} requests came, {len(self.left)} were left")
            time.sleep(0.005)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Server"

    def setup(self) -> None:
        super().setup()
        self.server.running.connections += 1
        self.server.open_sockets.add(self.connection)

    def finish(self) -> None:
        self.server.open_sockets.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        running, headers = self.server.running, {name.lower(): value for name, value in self.headers.items()}
        assert "transfer-encoding" not in headers, "no test sends chunks here"
        request = Request(self.requestline, headers, self.rfile.read(int(headers.get("content-length", "0"))))
        if request.path == LIVE_PATH:  # a health check, which the tests did not send
            Caller(request, self).answer()
            return
        running.requests.append(request)
        try:
            running.behave(Caller(request, self))
        except GoneError:
            self.close_connection = True
            if not running.stopped.is_set():
                running.left.append(request)

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024

    def __init__(self, port: int, behave: Behaviour) -> None:
        super().__init__((HOST, port), _Connection)
        self.running = Upstream(self.server_port, behave)
        self.open_sockets: set[socket.socket] = set()

    def handle_error(self, *_: Any) -> None:
        """Ignore connections that break off."""


@contextmanager
def upstream(behave: Behaviour = well, port: int = 0, certificate: Path | None = None) -> Iterator[Upstream]:
    """Run an upstream on a loopback port, a free one by default. All its connections end with the block. `certificate`
    is a directory with a `tls.crt` and its `tls.key`, for HTTPS."""
    with _Server(port, behave) as server:
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server.running
        finally:
            server.running.stopped.set()
            server.shutdown()
            for connection in list(server.open_sockets):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
