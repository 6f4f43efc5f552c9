"""A replica with scripted responses, over real sockets and real HTTP."""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from anyio.from_thread import start_blocking_portal
from tidegate_contracts.triton import INDEX_PATH, LIVE_PATH


@dataclass
class Received:
    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


HEALTH_CHECKS = [f"GET {path} HTTP/1.1" for path in (LIVE_PATH, "/alive", "/health")]  # Triton's, a toy's, OpenAI's.
BACKLOG = 1024  # Connections that wait to be accepted, as many as with Triton's own server.
INDEX_QUERY = f"POST {INDEX_PATH} HTTP/1.1"  # The proxy's query for failed loads.
Act = Callable[["Upstream", asyncio.StreamWriter, Received], Awaitable[None]]


@dataclass
class Upstream:
    """Answers 200 with `{"ok":1}`, unless `act` does something else."""

    act: Act | None = None
    index: object = field(default_factory=list)  # Its report about its models.
    index_seconds: float = 0.0  # How long listing them takes.
    queries: int = 0  # Number of queries for them.
    is_alive: bool = True  # Whether it answers health checks.
    health: bytes = b"200 OK"  # Its response to them.
    checked: list[float] = field(default_factory=list)  # Times of health checks, by the event loop's clock.
    requests: list[Received] = field(default_factory=list)  # All complete requests.
    connections: int = 0
    begun: int = 0  # Requests with a complete head.
    left: int = 0  # Connections that the other end closed, except `checkers`.
    port: int = 0
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    checkers: set[asyncio.StreamWriter] = field(default_factory=set)  # Connections of health checks.

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
        for writer in [*self.writers, *self.checkers]:
            writer.transport.abort()
        await asyncio.sleep(0)


async def answer(writer: asyncio.StreamWriter, body: bytes = b'{"ok":1}', head: str = "") -> None:
    lines = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{head}Content-Length: {len(body)}\r\n\r\n"
    writer.write(lines.encode() + body)
    await writer.drain()


def answering(
    body: bytes | Callable[[Received], bytes] = b'{"ok":1}',
    head: str = "",
    seconds: float = 0.0,
    go_on: asyncio.Event | None = None,
) -> Act:
    """Answer with this body, after `seconds`, or when a test sets `go_on`."""

    async def act(_: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        await (asyncio.sleep(seconds) if go_on is None else go_on.wait())
        await answer(writer, body(received) if callable(body) else body, head)

    return act


echo = answering(lambda received: received.body)


def raw(*parts: bytes, end: str = "", pause: float = 0.0) -> Act:
    """Answer with exactly these bytes. `end`: "close", "cut" or "reset" the connection afterwards."""

    async def act(_: Upstream, writer: asyncio.StreamWriter, __: Received) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        if end == "reset":
            with socket.fromfd(writer.get_extra_info("socket").fileno(), socket.AF_INET, socket.SOCK_STREAM) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if end in ("cut", "reset"):
            writer.transport.abort()
            await asyncio.sleep(0)
        elif end:
            writer.close()

    return act


close, reset = raw(end="close"), raw(end="reset")


def head(*lines: bytes, status: bytes = b"200 OK") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, *lines, b"", b""])


def response(body: bytes = b"{}", status: int = 200, kind: str = "application/json", **headers: str) -> bytes:
    """Return a complete response. Names of headers can have underscores instead of hyphens."""
    fields = {"Content-Type": kind, "Content-Length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    return head(*(f"{name}: {value}".encode() for name, value in fields.items()), status=b"%d Answer" % status) + body


def replying(reply: Callable[[Received], bytes]) -> Act:
    """Answer with the bytes that `reply` returns. It can block. Without any bytes, close the connection."""

    async def act(made: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        data = await asyncio.to_thread(reply, received)
        await raw(data, end="" if data else "close")(made, writer, received)

    return act


def by_turns(*acts: Act) -> Act:
    """Act like each of them in turn, and like the last one from then on."""
    left = list(acts)

    async def act(made: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(made, writer, received)

    return act


async def hang(_: Upstream, __: asyncio.StreamWriter, ___: Received) -> None:
    await asyncio.sleep(60)


def only(text: str, act: Act, otherwise: Act | None = None) -> Act:
    """Act like this if the first line of a request contains `text`, and as usual otherwise."""
    usual = otherwise or answering()

    async def either(made: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        await (act if text in received.line else usual)(made, writer, received)

    return either


def headers_of(lines: Iterable[str]) -> dict[str, str]:
    return {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}


async def _read(reader: asyncio.StreamReader, upstream: Upstream) -> Received:
    line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    upstream.begun += line not in (*HEALTH_CHECKS, INDEX_QUERY)
    headers = headers_of(lines)
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(line, headers, body)


@asynccontextmanager
async def upstream(
    act: Act | None = None, host: str = "127.0.0.1", port: int = 0, certificate: Path | None = None
) -> AsyncIterator[Upstream]:
    """Listen until the block ends. `certificate` is a directory with a `tls.crt` and its `tls.key`, for HTTPS."""
    made, context = Upstream(act), None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.writers.add(writer)
        made.connections += 1
        try:
            while True:
                received = await _read(reader, made)
                if received.line in HEALTH_CHECKS:  # the tests did not send these
                    made.checked.append(asyncio.get_running_loop().time())
                    made.writers.discard(writer)
                    made.checkers.add(writer)
                    if made.is_alive:
                        writer.write(head(b"content-length: 0", status=made.health))
                    continue
                if received.line == INDEX_QUERY:
                    made.writers.discard(writer)
                    made.checkers.add(writer)
                    made.queries += 1
                    await asyncio.sleep(made.index_seconds)
                    await answer(writer, json.dumps(made.index).encode())
                    continue
                made.requests.append(received)
                if made.act is None:
                    await answer(writer)
                else:
                    await made.act(made, writer, received)
        except (asyncio.IncompleteReadError, ConnectionError, RuntimeError) as error:
            # The proxy no longer waits: writing to a closed connection raises RuntimeError in uvloop.
            if isinstance(error, RuntimeError) and not writer.is_closing():
                raise
            made.left += writer not in made.checkers
        finally:
            made.writers.discard(writer)
            made.checkers.discard(writer)
            writer.close()

    made.server = await asyncio.start_server(serve, host, port, limit=1 << 20, backlog=BACKLOG, ssl=context)
    made.port = made.server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        await made.close()


@contextmanager
def running_upstream(act: Act | None = None, certificate: Path | None = None) -> Iterator[Upstream]:
    """Run an upstream on another thread, for tests without an event loop."""
    serving = upstream(act, certificate=certificate)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving) as made:
        yield made
