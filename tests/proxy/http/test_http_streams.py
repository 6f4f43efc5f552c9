"""How long a stream of events may last, and how requests behind one another are cut into pieces."""

import asyncio
from pathlib import Path

import pytest

from .house import MODEL, request, served
from .upstream import Asked, Upstream

pytestmark = pytest.mark.anyio
PATH = f"/v2/models/{MODEL}/generate_stream"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def events(_: Upstream, writer: asyncio.StreamWriter, __: Asked) -> None:
    writer.write(HEAD)
    for number in range(5):
        writer.write(b"9\r\ndata: %d\n\n\r\n" % number)
        await asyncio.sleep(0.5)
    writer.write(b"0\r\n\r\n")


async def silence(_: Upstream, writer: asyncio.StreamWriter, __: Asked) -> None:
    writer.write(HEAD + b"9\r\ndata: 0\n\n\r\n")
    await asyncio.sleep(20)


async def test_a_stream_that_moves_may_last_longer_than_a_request(tmp_path: Path) -> None:
    async with served(tmp_path, request_timeout_seconds=1) as here:
        here.replica.act = events
        reply = await here.ask(request(PATH))
        assert reply.body.count(b"data: ") == 5


async def test_a_stream_that_stands_still_is_ended(tmp_path: Path) -> None:
    async with served(tmp_path, request_timeout_seconds=1) as here:
        here.replica.act = silence
        with pytest.raises(asyncio.IncompleteReadError):
            await here.ask(request(PATH), seconds=4)


async def test_a_stream_ends_when_its_caller_said(tmp_path: Path) -> None:
    async with served(tmp_path, request_timeout_seconds=5) as here:
        here.replica.act = events
        with pytest.raises(asyncio.IncompleteReadError):
            await here.ask(request(PATH, Request_Timeout="1.2"), seconds=4)
