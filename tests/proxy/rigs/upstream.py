"""An upstream that misbehaves as it is told to: it stands in for a server that is broken, slow, or going away."""

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

_ABORT = struct.pack("ii", 1, 0)  # Linger for no time: closing sends a reset.


class GoneError(Exception):
    """The caller has closed the connection."""


@dataclass(frozen=True)
class Request:
    """What was received."""

    line: str
    headers: dict[str, str]  # By name in small letters.
    body: bytes

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


@dataclass
class Caller:
    """The connection of one caller, at the point where it waits for an answer."""

    request: Request
    connection: "_Connection"

    def send(self, *parts: bytes) -> None:
        """Send these bytes as they are; raises GoneError."""
        try:
            self.connection.wfile.write(b"".join(parts))
        except (OSError, ValueError):  # ValueError: it is closed
            raise GoneError from None

    def answer(self, body: bytes = b"{}", status: int = 200, kind: str = "application/json", **headers: str) -> None:
        """Send a whole answer; an underscore in a header's name stands for a hyphen."""
        self.send(head(status, kind, str(len(body)), **headers), body)

    def wait(self, seconds: float) -> None:
        """Do nothing for so long, or until the caller goes (GoneError), or the upstream ends."""
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
        self.connection.rfile.close()  # it holds the socket open otherwise
        self.connection.connection.close()


def head(status: int, kind: str = "", length: str | None = None, **headers: str) -> bytes:
    """Return the head of an answer; without a length it is chunked."""
    said = {
        **({"Content-Type": kind} if kind else {}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    said |= {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": length}
    lines = [f"HTTP/1.1 {status} Answer", *(f"{name}: {value}" for name, value in said.items())]
    return "\r\n".join([*lines, "", ""]).encode()


Behaviour = Callable[[Caller], None]
well, reset, close = Caller.answer, Caller.reset, Caller.close


def hang(caller: Caller) -> None:
    caller.wait(3600)


def cut_short(*parts: bytes, end: Behaviour = close) -> Behaviour:
    """Answer with these bytes alone, and end the connection so."""

    def behave(caller: Caller) -> None:
        caller.send(*parts)
        time.sleep(0.05)  # a reset overtakes what is still on its way
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
    """Answer with server-sent events, so far apart; at the end cut the connection, or end well."""

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
    """Behave so at the first request, so at the second, …; the last stays."""
    left = list(behaviours)
    lock = threading.Lock()

    def behave(caller: Caller) -> None:
        with lock:
            now = left.pop(0) if len(left) > 1 else left[0]
        now(caller)

    return behave


@dataclass
class Upstream:
    """An upstream that runs."""

    port: int
    behave: Behaviour = well  # What it does with a request; may be replaced at any time.
    requests: list[Request] = field(default_factory=list)
    left: list[Request] = field(default_factory=list)  # Those whose caller went before the answer was whole.
    connections: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def http(self) -> str:
        return f"{HOST}:{self.port}"

    def wait_for(self, number: int, of: Sequence[Request] | None = None, seconds: float = 10.0) -> None:
        """Wait until so many requests, or of those that a caller left, are there; raises TimeoutError."""
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
        if request.path == LIVE_PATH:  # a health check, which is no part of what tests ask
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
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024

    def __init__(self, port: int, behave: Behaviour) -> None:
        super().__init__((HOST, port), _Connection)
        self.running = Upstream(self.server_port, behave)
        self.open_sockets: set[socket.socket] = set()

    def handle_error(self, *_: Any) -> None:
        """Say nothing of connections that end."""


@contextmanager
def upstream(behave: Behaviour = well, port: int = 0, certificate: Path | None = None) -> Iterator[Upstream]:
    """Run an upstream on a port of loopback, any free one by default; all its connections end with the block.

    With the folder of a `tls.crt` and its `tls.key` it speaks HTTPS.
    """
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
