import asyncio
import gc
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tidegate_proxy import tls
from tidegate_proxy.guests import CONNECTION_BYTES, TLS_BYTES
from tidegate_proxy.http.request import HttpRequest
from tidegate_proxy.settings import Tunables

from lab.local_cluster.certificates import Authority

from .http.running_proxy import RIG, Caller, RunningProxy, request, served, until
from .http.upstream import answering

pytestmark = pytest.mark.anyio
MEMORY = 64 << 20
ANSWER = bytes(4_000_000)


@asynccontextmanager
async def over_tls(
    root: Path, memory: int = MEMORY, tunables: Tunables = RIG
) -> AsyncIterator[tuple[RunningProxy, ssl.SSLContext]]:
    authority = Authority()
    authority.write(root / "tls", "proxy")
    async with served(root, answering(ANSWER), tls=True, memory_bytes=memory, tunables=tunables) as here:
        yield here, ssl.create_default_context(cadata=authority.pem.decode())


async def connected(here: RunningProxy, trusted: ssl.SSLContext, buffer: int = 0) -> Caller:
    sock = socket.socket()
    if buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", here.proxy.ports["http"]))
    return Caller(*await asyncio.open_connection(sock=sock, ssl=trusted, server_hostname="127.0.0.1"))


async def test_a_connection_without_a_hello_counts_and_is_closed_for_the_next(tmp_path: Path) -> None:
    async with over_tls(tmp_path) as (here, trusted):
        strangers = here.proxy.shared.memory.strangers
        number = 2 * strangers.limit // (CONNECTION_BYTES + TLS_BYTES)
        silent = [await asyncio.open_connection("127.0.0.1", here.proxy.ports["http"]) for _ in range(number)]
        async with asyncio.timeout(5):
            assert await silent[0][0].read() == b"", "the oldest has made room"
        assert 0 < strangers.held <= strangers.limit
        caller = await connected(here, trusted)
        await caller.send(request())
        assert (await caller.reply()).status == 200
        for _, writer in silent:
            writer.transport.abort()
        await until(lambda: not strangers.held)


@pytest.mark.parametrize("seconds", [0.2, Tunables.hello_seconds])
async def test_a_connection_without_tls_is_closed(tmp_path: Path, seconds: float) -> None:
    async with over_tls(tmp_path, tunables=replace(RIG, hello_seconds=seconds)) as (here, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", here.proxy.ports["http"])
        if seconds > 1:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(5):
            while await reader.read(1000):
                pass
        await until(lambda: not here.proxy.shared.memory.strangers.held)
        writer.close()


async def test_a_connection_whose_records_bring_no_data_is_closed(tmp_path: Path) -> None:
    """A hello in records of a byte each. Like thousands of new keys, which Python cannot send, it brings no data."""
    async with over_tls(tmp_path) as (here, trusted):
        reader, writer = await asyncio.open_connection("127.0.0.1", here.proxy.ports["http"])
        hello = bytes((1, *(100_000).to_bytes(3), 3, 3)) + bytes(tls.MOST_FRUITLESS)
        writer.write(b"".join(b"\x16\x03\x01\0\x01%c" % each for each in hello))
        with suppress(ConnectionResetError):
            async with asyncio.timeout(5):
                while await reader.read(1000):
                    pass
        assert here.proxy.shared.memory.cut["chatter"] == 1
        caller = await connected(here, trusted)
        for size in (2, 1_000_000):
            await caller.send(request(body=bytes(size)))
            assert (await caller.reply()).status == 200


@pytest.mark.parametrize("size", [100, 10_000, 200_000])
async def test_a_body_that_comes_with_the_end_of_the_hello_is_taken(tmp_path: Path, size: int) -> None:
    async with over_tls(tmp_path, memory=8 * MEMORY) as (here, trusted):
        reader, writer = await asyncio.open_connection("127.0.0.1", here.proxy.ports["http"])
        came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        caller = trusted.wrap_bio(came, goes, server_hostname="127.0.0.1")
        with suppress(ssl.SSLWantReadError):
            caller.do_handshake()
        writer.write(goes.read())
        while True:
            came.write(await reader.read(1 << 16))
            with suppress(ssl.SSLWantReadError):
                caller.do_handshake()
                break
        caller.write(request(body=bytes(size)))
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        writer.write(goes.read())
        answer = b""
        async with asyncio.timeout(5):
            while b"\r\n" not in answer:
                came.write(await reader.read(1 << 16) or pytest.fail("it was ended without an answer"))
                with suppress(ssl.SSLWantReadError):
                    answer += caller.read(1 << 16)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert not here.proxy.shared.memory.cut.total()
        writer.transport.abort()


class _Brings:
    """A TLS in which each read brings so many bytes of data."""

    def __init__(self) -> None:
        self.data, self.came_inside, self.came = 0, 0, 0
        self.turns: list[bool] = []

    def get_buffer(self, _sizehint: int) -> memoryview:
        return memoryview(bytearray(1 << 18))

    def buffer_updated(self, _size: int) -> None:
        self.came_inside += self.data

    def note_fruitless(self, *, too_much: bool) -> None:
        self.turns.append(too_much)


def test_little_is_read_in_each_turn_of_a_connection_whose_records_bring_no_data() -> None:
    door = _Brings()
    records = tls._Records(door, door)  # type: ignore[arg-type]

    def room_after(size: int) -> int:
        records.buffer_updated(size)
        return len(records.get_buffer(0))

    assert len(records.get_buffer(0)) == 1 << 18
    for _ in range(tls.MOST_FRUITLESS // tls.FRUITLESS_AT_ONCE):
        assert room_after(tls.FRUITLESS_AT_ONCE) == tls.FRUITLESS_AT_ONCE
    assert not any(door.turns)
    door.data = 16_384
    room_after(16_406)
    assert room_after(16_406) == 1 << 18, "two records have made up for it"
    door.data, number = 1, len(door.turns)
    while True not in door.turns[number:]:  # a byte of data now and then does not
        room_after(27 + 23)


async def test_buffers_of_tls_count_in_both_directions(tmp_path: Path) -> None:
    async with over_tls(tmp_path) as (here, trusted):
        caller = await connected(here, trusted, 4096)
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is read from too
        await caller.send(request(body=bytes(100_000)))
        await until(lambda: any(each._writing_paused for each in here.proxy.http.connections))
        [connection] = here.proxy.http.connections
        assert connection.booking.size >= connection.base_bytes + connection.unsent, "at once, and not with the sweep"
        assert connection.base_bytes > CONNECTION_BYTES + TLS_BYTES
        caller.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len((await caller.reply()).body) == len(ANSWER)
        await until(lambda: connection.booking.size == connection.base_bytes)
        caller.writer.transport.abort()
        await until(lambda: not here.proxy.http.connections)
        memory = here.proxy.shared.memory
        assert memory.callers.held == memory.strangers.held == 0


@contextmanager
def without_collector() -> Iterator[None]:
    """Free only unreferenced objects. Cycles stay, because with few new objects they stay for long. Older objects are
    frozen. They are not `left`, and scanning all of them would block the loop."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def left(kind: type) -> int:
    return sum(isinstance(each, kind) for each in gc.get_objects())


async def test_a_connection_that_is_reset_at_once_leaves_nothing(tmp_path: Path) -> None:
    async with over_tls(tmp_path) as (here, trusted):
        errors: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        with without_collector():
            for number in range(200):
                sock = socket.create_connection(("127.0.0.1", here.proxy.ports["http"]))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.sendall(b"\x16\x03\x01"[: number % 4])
                if number % 3 == 0:
                    await asyncio.sleep(0.002)
                sock.close()
            await until(lambda: not left(tls.TlsHandshake))
        assert here.proxy.shared.memory.strangers.held == 0
        assert not errors
        caller = await connected(here, trusted)
        await caller.send(request())
        assert (await caller.reply()).status == 200
        caller.writer.transport.abort()


async def test_a_call_without_memory_ends_with_its_caller(tmp_path: Path) -> None:
    async with over_tls(tmp_path) as (here, trusted):
        budget = here.proxy.shared.memory.callers
        budget.held += budget.limit  # others'
        with without_collector():
            callers = [await connected(here, trusted) for _ in range(5)]
            for caller in callers:
                await caller.send(request())
                assert (await caller.reply()).status == 503
                caller.writer.transport.abort()
            await until(lambda: not (left(HttpRequest) or left(tls.TlsHandshake)))
