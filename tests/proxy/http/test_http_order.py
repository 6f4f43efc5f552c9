"""Requests one behind another, and answers of replicas in every form: none is taken for another."""

import asyncio
from pathlib import Path

import pytest

from .house import ENVELOPE, METADATA, MODEL, PATH, Caller, House, request, served, until
from .upstream import Asked, Upstream, answer, answering, echo

pytestmark = pytest.mark.anyio


# --- requests
async def test_a_call_waits_for_the_answer_of_a_request_that_the_application_still_works_on(
    here: House, caller: Caller
) -> None:
    go_on = asyncio.Event()

    async def slow_metadata(_: Upstream, writer: asyncio.StreamWriter, asked: Asked) -> None:
        if asked.line.startswith("GET /v2 "):
            await go_on.wait()
            await answer(writer, b'{"name":"triton"}')
        else:
            await answer(writer)

    here.replica.act = slow_metadata
    await caller.send(request("/v2", method="GET"))
    await until(lambda: here.replica.asked)
    await caller.send(request())
    await until(lambda: any(each._queue for each in here.proxy.http.connections))
    go_on.set()
    assert [(await caller.reply()).body for _ in range(2)] == [b'{"name":"triton"}', b'{"ok":1}']


@pytest.mark.parametrize("first", [request(), METADATA, request("/healthz", method="GET", key=None)])
async def test_predict_is_answered_in_its_turn_too(here: House, caller: Caller, first: bytes) -> None:
    here.replica.act = echo
    predict = request("/predict", ENVELOPE % b'{"turn":2}')
    await caller.send(first + predict + request(body=b"third") + predict)
    replies = [await caller.reply() for _ in range(4)]
    assert [reply.status for reply in replies] == [200] * 4
    assert [reply.body for reply in replies[1:]] == [b'{"turn":2}', b"third", b'{"turn":2}']


@pytest.mark.parametrize("path", [PATH, "/predict"])
async def test_a_body_that_grows_too_long_behind_another_request_is_refused_in_its_turn(
    tmp_path: Path, path: str
) -> None:
    chunks = b"".join(b"64\r\n%b\r\n" % bytes(100) for _ in range(3)) + b"0\r\n\r\n"
    async with served(tmp_path, answering(seconds=0.1), body_limit_bytes=200) as here, here.caller() as one:
        await one.send(request() + request(path, b"", Transfer_Encoding="chunked") + chunks)
        assert [(await one.reply()).status for _ in range(2)] == [200, 413]
        assert len(here.replica.asked) == 1


async def test_a_head_after_empty_lines_is_a_request(caller: Caller) -> None:
    for before in (b"\r\n", b"", b"\r\n", b""):
        await caller.send(before)
        await asyncio.sleep(0.01)
        await caller.send(before + request())
        assert (await caller.reply()).status == 200


@pytest.mark.parametrize("data", [request(Connection="close"), request().replace(b"HTTP/1.1", b"HTTP/1.0")])
async def test_a_request_that_is_its_connections_last_ends_it(here: House, data: bytes) -> None:
    async with here.caller() as caller:
        await caller.send(data)
        await caller.send(request())
        reply = await caller.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await caller.ended()
    assert len(here.replica.asked) == 1


async def test_the_answer_to_head_has_no_body_that_the_next_answer_would_follow(caller: Caller) -> None:
    for _ in range(3):
        await caller.send(request(f"/v2/models/{MODEL}", method="HEAD"))
        assert (await caller.head())[0] == 405
        await caller.send(METADATA)
        assert (await caller.reply()).status == 200
