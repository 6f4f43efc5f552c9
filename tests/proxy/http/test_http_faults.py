import asyncio
import os
from pathlib import Path

import pytest

from lab.local_plane.process import free_ports

from .running_proxy import MODEL, Reply, RunningProxy, request, running_proxy, served, standing_still, until
from .upstream import Act, Received, Upstream, answer, answering, echo, hang, head, raw, upstream

pytestmark = pytest.mark.anyio
CHUNKED = b"transfer-encoding: chunked"


async def test_a_replica_that_refuses_costs_the_caller_nothing_while_another_is_there(tmp_path: Path) -> None:
    async with upstream() as replica, running_proxy(tmp_path, *free_ports(1), replica) as here:
        replies = [await here.ask() for _ in range(30)]
        assert {reply.status for reply in replies} == {200}
        assert len([each for each in replica.requests if each.line.startswith("POST")]) == 30


async def test_connections_that_a_replica_closed_meanwhile_are_not_used(here: RunningProxy) -> None:
    async def close_after(_: Upstream, writer: asyncio.StreamWriter, __: Received) -> None:
        await answer(writer)
        writer.close()

    here.replica.act = close_after
    for number, pause in enumerate((0.05, 0.3, 0.05, 0.3), 1):
        assert (await here.ask()).status == 200
        assert len(here.replica.requests) == number
        await asyncio.sleep(pause)


async def test_a_call_on_a_kept_connection_that_just_closed_fails_without_a_retry(here: RunningProxy) -> None:
    async def end_with_the_second(made: Upstream, writer: asyncio.StreamWriter, _: Received) -> None:
        if len(made.requests) == 2:
            writer.transport.abort()  # the request was being sent when the replica closed the connection
        else:
            await answer(writer)

    here.replica.act = end_with_the_second
    replies = [await here.ask() for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 502, 200]
    assert "Send the request again only if" in replies[1].json()["detail"]
    assert len(here.replica.requests) == 3


async def test_the_call_of_a_disconnected_caller_is_dropped(here: RunningProxy) -> None:
    here.replica.act = hang
    async with here.caller() as caller:
        await caller.send(request())
        await until(lambda: here.replica.requests)
    await until(lambda: not here.proxy.shared.open_calls)
    here.replica.server.close()  # type: ignore[union-attr]
    assert here.pool.replicas[0].in_flight == 0
    assert here.proxy.shared.limiter.in_flight == 0
    [count] = here.proxy.meter.calls.values()
    assert dict(count.statuses) == {499: 1}


async def test_a_slow_caller_slows_only_the_replica(here: RunningProxy) -> None:
    size = 64 << 20
    sent = 0

    async def pour(_: Upstream, writer: asyncio.StreamWriter, __: Received) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _part in range(size >> 16):
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    here.replica.act = pour
    reader, writer = await asyncio.open_connection("127.0.0.1", here.proxy.ports["http"], limit=1024)
    writer.write(request())
    await until(lambda: any(each._writing_paused for each in here.proxy.http.connections))
    assert await standing_still(lambda: sent) < size // 2, "the proxy holds no more than its buffers"
    assert (await here.ask(request("/healthz", method="GET", key=None))).status == 200
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    left = size
    while left:
        left -= len(await reader.read(1 << 20))
    writer.close()


async def test_calls_beyond_the_slots_wait_and_beyond_the_queue_are_refused(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with served(tmp_path, answering(go_on=go_on), concurrency=2) as here:
        # Two of the eight places in the queue are for other models and callers.
        first = [asyncio.ensure_future(here.ask()) for _ in range(8)]
        places = here.proxy.shared.limiter
        await until(lambda: (places.in_flight, places.waiting) == (2, 6))
        await until(lambda: here.replica.begun == 2)
        refused = await here.ask()
        assert (refused.status, refused.problem) == (503, "busy")
        late = await here.ask(request("/healthz", method="GET", key=None))
        assert late.status == 200, "health answers at any load"
        go_on.set()
        assert {reply.status for reply in await asyncio.gather(*first)} == {200}
        assert (places.in_flight, places.waiting) == (0, 0)


async def test_a_reload_drops_no_call_in_flight(here: RunningProxy) -> None:
    go_on = asyncio.Event()
    here.replica.act = answering(go_on=go_on)
    call: asyncio.Future[Reply] = asyncio.ensure_future(here.ask())
    await until(lambda: here.replica.requests)
    empty = {"version": 1, "environment": "test", "servers": [], "models": []}
    rules = here.proxy.config.authorizer._rules
    here.write("routing.json", str(empty).replace("'", '"'))
    await here.proxy.config.watched[0].look()
    assert (await here.ask()).status == 404
    assert here.proxy.config.authorizer._rules is rules, "the access table has not changed"
    go_on.set()
    assert (await call).status == 200


async def test_a_large_body_streams_both_ways_and_too_large_a_one_is_refused(here: RunningProxy) -> None:
    body = os.urandom(900_000)
    here.replica.act = echo
    assert (await here.ask(request(body=body))).body == body
    for data in (
        request(body=body * 2),
        request(body=b"", Transfer_Encoding="chunked")
        + b"".join(b"186a0\r\n%b\r\n" % bytes(100_000) for _ in range(12)),
        request("/predict", b"x" * 1_000_001),
    ):
        reply = await here.ask(data)
        assert (reply.status, reply.problem) == (413, "too-large")
    assert len(here.replica.requests) == 1


GENERATE = f"/v2/models/{MODEL}/generate_stream"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MOVES = raw(STREAM, *(b"9\r\ndata: %d\n\n\r\n" % number for number in range(5)), b"0\r\n\r\n", pause=0.4)
STANDS_STILL = raw(STREAM + b"9\r\ndata: 0\n\n\r\n", pause=20)


@pytest.mark.parametrize(
    ("act", "most", "data", "is_whole"),
    [
        (MOVES, 1, request(GENERATE), True),
        (STANDS_STILL, 1, request(GENERATE), False),
        (MOVES, 5, request(GENERATE, Request_Timeout="1.2"), False),
    ],
    ids=["it moves", "it stands still", "its caller set the deadline"],
)
async def test_a_stream_may_last_longer_than_a_request_while_it_moves(
    tmp_path: Path, act: Act, most: int, data: bytes, is_whole: bool
) -> None:
    async with served(tmp_path, act, request_timeout_seconds=most) as here:
        asking = here.ask(data, seconds=4)
        if is_whole:
            assert (await asking).body.count(b"data: ") == 5
        else:
            with pytest.raises(asyncio.IncompleteReadError):
                await asking


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (b'{"error":"in model.py"}', 502),
        (b'{"error":0.5,"model_name":"m","model_version":"1"}', 200),  # A tensor can have that name.
        (b'{"text":"error"}', 200),
    ],
)
async def test_a_stream_that_reports_an_error_is_handed_on_and_counts_as_failed(
    here: RunningProxy, event: bytes, status: int
) -> None:
    body = b"data: %b\n\n" % event
    here.replica.act = raw(STREAM, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    reply = await here.ask(request(GENERATE))
    assert (reply.status, reply.body) == (200, body)
    [count] = here.proxy.shared.meter.calls.values()
    assert dict(count.statuses) == {status: 1}
    assert not here.proxy.shared.meter.tokens, "Triton's streams report no usage"


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\n", head(CHUNKED) + b"0\r\n"], ids=["head", "trailers"])
@pytest.mark.parametrize("lines", [b"x: y\r\n" * 20_000, b"x: " + b"y" * 200_000], ids=["lines", "a line"])
async def test_headers_of_an_answer_that_do_not_end_are_not_kept(tmp_path: Path, begin: bytes, lines: bytes) -> None:
    async with served(tmp_path, raw(begin, lines)) as here, here.caller() as caller:
        await caller.send(request())
        await until(lambda: here.replica.left and not here.proxy.shared.open_calls)
        assert here.proxy.shared.meter.upstream_errors == {("vision", "reset"): 1}
        here.replica.act = raw(head(b"x: " + b"y" * 60_000, b"content-length: 1"), b"1")
        reply = await here.ask()
        assert (reply.status, len(reply.headers["x"])) == (200, 60_000)


async def test_an_endless_error_does_not_extend_the_deadline(tmp_path: Path) -> None:
    endless = raw(head(CHUNKED, status=b"500 -"), *[b"1\r\nx\r\n"] * 10_000, pause=0.01)
    async with served(tmp_path, endless, request_timeout_seconds=1) as here:
        reply = await here.ask(request(GENERATE))
        assert (reply.status, reply.problem) == (504, "deadline-exceeded")
