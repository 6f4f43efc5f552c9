"""An upstream that misbehaves as it is told to: it stands in for a server that is broken, slow, or going away."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from lab.local_plane.process import HOST

_ABORT = struct.pack("ii", 1, 0)
"""Linger for no time: closing sends a reset."""


class GoneError(Exception):
    """The caller has closed the connection."""


@dataclass(frozen=True)
class Request:
    """What was received, its body whole and no longer chunked."""

    line: str
    headers: dict[str, str]
    """By name in small letters."""
    body: bytes
    connection: int
    """Counts the connections."""

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


@dataclass
class Caller:
    """The connection of one caller, at the point where it waits for an answer."""

    request: Request
    socket: socket.socket
    reader: BinaryIO
    stopped: threading.Event

    def send(self, *parts: bytes) -> None:
        """Send these bytes as they are; raises GoneError."""
        try:
            self.socket.sendall(b"".join(parts))
        except OSError:
            raise GoneError from None

    def answer(self, body: bytes = b"{}", status: int = 200, kind: str = "application/json", **headers: str) -> None:
        """Send a whole answer; an underscore in a header's name stands for a hyphen."""
        self.send(head(status, kind, str(len(body)), **headers), body)

    def wait(self, seconds: float) -> None:
        """Do nothing for so long, or until the caller goes (GoneError), or the upstream ends."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.stopped.wait(min(left, 0.02)):
                raise GoneError
            if self.gone():
                raise GoneError

    def gone(self) -> bool:
        try:
            return self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self.close()

    def close(self) -> None:
        self.reader.close()  # it holds the socket open otherwise
        self.socket.close()


Behaviour = Callable[[Caller], None]


def well(caller: Caller) -> None:
    """Answer with what was asked, as JSON: the request line, the size of the body, the number of the connection."""
    request = caller.request
    said = {"line": request.line, "bytes": len(request.body), "connection": request.connection}
    caller.answer(json.dumps(said).encode())


def hang(caller: Caller) -> None:
    caller.wait(3600)


def reset(caller: Caller) -> None:
    caller.reset()


def close(caller: Caller) -> None:
    caller.close()


def answer_then_close(caller: Caller) -> None:
    """Answer, and close the connection without having said so: whoever keeps it meets a dead one."""
    well(caller)
    caller.close()


def half(caller: Caller) -> None:
    caller.send(head(200, "application/json", "100"), b"x" * 50)
    caller.close()


def half_then_reset(caller: Caller) -> None:
    caller.send(head(200, "application/json", "100"), b"x" * 50)
    time.sleep(0.05)  # a reset overtakes what is still on its way
    caller.reset()


def half_a_head(caller: Caller) -> None:
    caller.send(b"HTTP/1.1 200 OK\r\nContent-Le")
    caller.close()


def nonsense(caller: Caller) -> None:
    caller.send(b"\x00\x01 this is no HTTP\r\n\r\n")
    caller.close()


def truncated_chunks(caller: Caller) -> None:
    caller.send(head(200, "application/json", None), b"5\r\nhello\r\n10\r\nhalf")
    caller.close()


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


def slowly(seconds: float, then: Behaviour = well) -> Behaviour:
    def behave(caller: Caller) -> None:
        caller.wait(seconds)
        then(caller)

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
    behave: Behaviour = well
    """What it does with a request; may be replaced at any time."""
    requests: list[Request] = field(default_factory=list)
    left: list[Request] = field(default_factory=list)
    """Those whose caller went before the answer was whole."""
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


@contextmanager
def upstream(behave: Behaviour = well, port: int = 0) -> Iterator[Upstream]:
    """Run an upstream on a port of loopback, any free one by default; all its connections end with the block."""
    listener = socket.create_server((HOST, port), backlog=1024)
    running = Upstream(listener.getsockname()[1], behave)
    open_sockets: set[socket.socket] = set()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            running.connections += 1
            open_sockets.add(connection)
            threading.Thread(target=serve, args=(connection, running.connections), daemon=True).start()

    def serve(connection: socket.socket, number: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            _serve(running, connection, number)
        except OSError:
            pass
        finally:
            open_sockets.discard(connection)
            connection.close()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield running
    finally:
        running.stopped.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in list(open_sockets):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def head(status: int, kind: str, length: str | None, **headers: str) -> bytes:
    """Return the head of an answer; without a length it is chunked."""
    said = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    said |= {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": length}
    lines = [f"HTTP/1.1 {status} Answer", *(f"{name}: {value}" for name, value in said.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _serve(running: Upstream, connection: socket.socket, number: int) -> None:
    reader: BinaryIO = connection.makefile("rb")
    while line := reader.readline():
        headers = {}
        while (field := reader.readline()) not in (b"\r\n", b""):
            name, _, value = field.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = _chunks(reader) if headers.get("transfer-encoding", "").lower() == "chunked" else (
            reader.read(int(headers.get("content-length", "0")))
        )  # fmt: skip
        request = Request(line.decode("latin-1").rstrip("\r\n"), headers, body, number)
        running.requests.append(request)
        caller = Caller(request, connection, reader, running.stopped)
        try:
            running.behave(caller)
        except GoneError:
            if not running.stopped.is_set():
                running.left.append(request)
            return
        if connection.fileno() < 0:
            return


def _chunks(reader: BinaryIO) -> bytes:
    parts = []
    while size := int(reader.readline().split(b";")[0], 16):
        parts.append(reader.read(size))
        reader.readline()
    while reader.readline() not in (b"\r\n", b""):
        pass
    return b"".join(parts)
