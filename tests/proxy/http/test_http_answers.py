import asyncio
from pathlib import Path

import pytest

from .running_proxy import Reply, RunningProxy, request, running_proxy, served, until
from .upstream import Act, head, raw

pytestmark = pytest.mark.anyio
CHUNKS = head(b"Transfer-Encoding: chunked")
HELLO = b"5\r\nhello\r\n0\r\n\r\n"
ERROR = b'{"error":"no x"}\n'


OTHERWISE = {
    "an error of the server": (
        raw(head(b"Content-Length: 17", status=b"500 Internal Server Error") + ERROR),
        (500, ERROR),
    ),
    "an end by its connection": (raw(b"HTTP/1.0 200 OK\r\n\r\nall of it", end="closed"), (200, b"all of it")),
    "a last one": (raw(head(b"Connection: close", b"Content-Length: 2") + b"ok"), (200, b"ok")),
    "another protocol": (raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "upstream-failed"),
    "nothing": (raw(end="cut"), "upstream-failed"),
    "a switch": (
        raw(head(b"Upgrade: h2c", b"Connection: Upgrade", status=b"101 Switching Protocols") + b"PRI"),
        "upstream-failed",
    ),
    "a length and chunks": (raw(head(b"Content-Length: 5", b"Transfer-Encoding: chunked") + HELLO), "upstream-failed"),
    "chunks and a length": (raw(head(b"Transfer-Encoding: chunked", b"Content-Length: 5") + HELLO), "upstream-failed"),
    "two lengths": (raw(head(b"Content-Length: 5", b"Content-Length: 4") + b"hello"), "upstream-failed"),
    "another encoding": (raw(head(b"Transfer-Encoding: gzip, chunked") + HELLO), "upstream-failed"),
    "half of it": (raw(head(b"Content-Length: 100") + b"half", end="closed"), "cut"),
    "half a stream": (raw(CHUNKS + b"5\r\nfirst\r\n", end="cut"), "cut"),
}


@pytest.mark.parametrize(("act", "expected"), OTHERWISE.values(), ids=OTHERWISE)
async def test_a_response_that_ends_with_its_connection_is_reported_correctly(
    tmp_path: Path, act: Act, expected: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, act) as here:
        for _ in range(2):
            found: object = "cut"
            try:
                reply: Reply = await here.ask()
                found = (reply.status, reply.body) if isinstance(expected, tuple) else reply.problem
                assert (reply.status == 502) == (expected == "upstream-failed")
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            assert found == expected
        assert len(here.replica.requests) == 2
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("lines", [(), (b"Content-Length: 7",)])
async def test_a_response_without_a_body_is_complete_and_the_next_one_is_read(
    here: RunningProxy, status: bytes, lines: tuple[bytes, ...]
) -> None:
    here.replica.act = raw(head(*lines, status=status))
    async with here.caller() as caller:
        for _ in range(4):
            await caller.send(request())
            assert (await caller.head())[0] == int(status[:3])
    assert len(here.replica.requests) == 4
    here.replica.act = raw(end="closed")
    assert (await here.ask()).status == 502


async def test_a_connection_is_not_reused_after_connection_close(here: RunningProxy) -> None:
    here.replica.act = OTHERWISE["a last one"][0]
    for number in range(1, 4):
        assert (await here.ask()).body == b"ok"
        await until(lambda number=number: here.replica.left == number)


@pytest.mark.parametrize("more", [b"x", head(b"Content-Length: 6") + b"smu", head(b"Content-Length: 3") + b"two"])
async def test_bytes_after_a_response_are_dropped(tmp_path: Path, more: bytes) -> None:
    act = raw(head(b"Content-Length: 2") + b"ok" + more)
    async with served(tmp_path, act, concurrency=1) as here:
        for _ in range(2):
            replies = await asyncio.gather(*(here.ask() for _ in range(4)))
            assert {(reply.status, reply.body) for reply in replies} == {(200, b"ok")}
        assert len(here.replica.requests) == 8


async def test_an_answer_before_the_request_is_whole_ends_both_connections(tmp_path: Path) -> None:
    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head(b"Content-Length: 2") + b"no")

    server = await asyncio.start_server(at_once, "127.0.0.1", 0)
    async with server, running_proxy(tmp_path, server.sockets[0].getsockname()[1]) as here:
        for _ in range(3):
            async with here.caller() as caller:
                await caller.send(request(body=bytes(1000))[:-500])
                reply = await caller.reply()
                assert (reply.status, reply.body, reply.headers["connection"]) == (200, b"no", "close")
