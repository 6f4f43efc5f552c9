import asyncio
import gzip
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidegate_proxy import kinds
from tidegate_proxy.http import body
from tidegate_proxy.http.request import HttpRequest
from tidegate_proxy.problems import Problem, ProblemType

from .running_proxy import (
    ENVELOPE,
    KEY,
    MODEL,
    PATH,
    RIG,
    Caller,
    RunningProxy,
    model,
    request,
    running_proxy,
    served,
    until,
)
from .upstream import answering, hang, only

pytestmark = pytest.mark.anyio
LIMIT = 8_000_000


def head(path: str, length: int, *more: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: proxy", *more, f"Content-Length: {length}", "", ""]).encode()


async def pushed(caller: Caller, size: int, seconds: float) -> int:
    """Send as much as the proxy accepts, and return how many bytes that was."""
    sent = 0
    caller.writer.transport.set_write_buffer_limits(high=1)
    try:
        async with asyncio.timeout(seconds):
            while sent < size:
                await caller.send(bytes(min(65536, size - sent)))
                sent += 65536
    except (TimeoutError, ConnectionError):
        pass
    return sent


def held(here: RunningProxy) -> int:
    memory = here.proxy.shared.memory
    return memory.callers.held + memory.strangers.held


@pytest.mark.parametrize("path", ["/Predict", "/v2/health/live", "/openapi.yaml", "/nothing"])
async def test_requests_of_the_application_are_answered_without_their_body(tmp_path: Path, path: str) -> None:
    async with running_proxy(tmp_path, body_limit_bytes=LIMIT) as here, here.caller() as caller:
        await caller.send(head(path, 10**12) + b"x")
        reply = await caller.reply()
        assert reply.status in (404, 405)
        assert reply.headers["connection"] == "close"
        sending = asyncio.ensure_future(pushed(caller, 10**12, 20))
        await until(lambda: not here.proxy.http.connections)
        await sending


async def test_little_of_a_predict_is_read_before_its_caller_is_identified(tmp_path: Path) -> None:
    async with served(tmp_path, body_limit_bytes=LIMIT) as here, here.caller() as caller:
        await caller.send(head("/predict", LIMIT))
        read: list[int] = []
        gate = here.proxy.shared.authorizer
        identify = gate.identify

        async def slowly(credential: bytes) -> Any:
            await until(lambda: any(each.body.is_held for each in here.proxy.shared.open_calls))  # type: ignore[attr-defined]
            read.append(max(each.body.received for each in here.proxy.shared.open_calls))  # type: ignore[attr-defined]
            return await identify(credential)

        gate.identify = slowly  # type: ignore[method-assign]
        sending = asyncio.ensure_future(pushed(caller, LIMIT, 5))
        assert (await caller.reply()).problem == "unauthenticated"
        assert read[0] < body.MOST_UNSENT + 1_000_000
        sending.cancel()


async def test_a_body_that_never_could_be_held_is_too_large_and_one_that_cannot_be_now_waits_for_others(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, body_limit_bytes=LIMIT, memory_bytes=32 << 20) as here, here.caller() as caller:
        most = here.proxy.shared.memory.callers.most
        assert (await here.ask(request("/predict", ENVELOPE % (b" " * most + b"{}")))).problem == "too-large"
        await caller.send(head("/predict", 4_000_000, f"X-API-Key: {KEY}") + bytes(3_900_000))
        await until(lambda: held(here) > 3_900_000)
        reply = await here.ask(request("/predict", ENVELOPE % (b" " * 2_000_000 + b"{}")))
        assert (reply.status, reply.problem, reply.headers["retry-after"]) == (503, "full", "1")
        caller.writer.transport.abort()
        await until(lambda: held(here) == 0)
        assert (await here.ask(request("/predict", ENVELOPE % (b" " * 2_000_000 + b"{}")))).status == 200


async def test_a_request_that_a_replica_received_in_part_has_no_retry_after(tmp_path: Path) -> None:
    async with served(tmp_path, hang) as here:
        for data in (request(), head(PATH, 500_000, f"X-API-Key: {KEY}") + bytes(100_000)):
            async with here.caller() as caller:
                await caller.send(data)
                await until(lambda: any(each.in_flight for each in here.pool.replicas))
                [call] = here.proxy.shared.open_calls
                assert isinstance(call, HttpRequest)
                call.fail(Problem(ProblemType.FULL, "no more", 1.0))
                reply = await caller.reply()
                assert (reply.problem, reply.headers.get("retry-after")) == ("full", None)
                assert "retryAfterSeconds" not in reply.json()


async def test_a_body_that_waits_behind_another_request_is_given_back_when_its_caller_leaves(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    go_on.set()
    async with served(tmp_path, answering(go_on=go_on)) as here, here.caller() as caller:
        await caller.send(request())
        await caller.reply()  # the proxy reads little at once from an unauthenticated caller
        go_on.clear()
        [connection] = here.proxy.http.connections
        connection.data_received(request() + head(PATH, 500_000, f"X-API-Key: {KEY}") + bytes(100_000))
        await until(lambda: held(here) > 100_000)
        caller.writer.transport.abort()
        go_on.set()
        await until(lambda: held(here) == 0)


@pytest.mark.parametrize("ended", [b"\r\n", b""], ids=["whole", "without an end"])
async def test_a_head_of_very_many_headers_is_refused_however_short_they_are(caller: Caller, ended: bytes) -> None:
    await caller.send(b"POST %b HTTP/1.1\r\nHost: a\r\n" % PATH.encode() + b"a:b\r\n" * 300 + ended)
    assert (await caller.reply()).problem == "headers-too-large"


async def test_a_long_list_of_models_counts_in_its_callers_memory_and_arrives_completely(tmp_path: Path) -> None:
    models = [f"m{number}" for number in range(3000)]
    async with served(tmp_path, models=models, memory_bytes=32 << 20) as here:
        slow = await deaf_caller(here)
        await until(lambda: here.proxy.http.connections)
        [connection] = here.proxy.http.connections
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        slow.send(request("/models", method="GET"))
        memory = here.proxy.shared.memory
        await until(lambda: memory.callers.held > memory.strangers.most)
        reader, writer = await asyncio.open_connection(sock=slow)
        assert len((await Caller(reader, writer).reply()).json()["models"]) == len(models)
        writer.close()


async def test_requests_sent_ahead_are_read_as_they_are_answered(tmp_path: Path) -> None:
    async with served(tmp_path, memory_bytes=512 << 20) as here, here.caller() as caller:
        number = 5000
        await caller.send(request("/healthz", method="GET") * number)
        for _ in range(10):
            assert (await caller.reply()).status == 200
        [connection] = here.proxy.http.connections
        assert len(connection._queue) < 200, "the others are not requests yet"
        for _ in range(number - 10):
            assert (await caller.reply()).status == 200


async def test_a_packed_body_is_unpacked_in_steps_and_no_further_than_needed(tmp_path: Path) -> None:
    keeps = only("GET", answering(b'{"sequence_batching":{}}'))
    parameters = b'{"parameters":{"sequence_id":1}}'
    for plain, status, more in (
        (parameters + b" " * LIMIT, 413, {}),
        (parameters + b" " * (LIMIT - 100), 200, {}),
        (parameters + b" " * (4 * LIMIT), 200, {"Inference_Header_Content_Length": str(len(parameters))}),
    ):
        packed = gzip.compress(plain)
        async with served(tmp_path, keeps, models=[model(MODEL, {1: 50, 2: 50})], body_limit_bytes=LIMIT) as here:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.ensure_future(count())
            reply = await here.ask(request(body=packed, Content_Encoding="gzip", **more))
            counting.cancel()
            assert reply.status == status, reply
            assert bool(more) or turns > LIMIT // body.STEP
            await until(lambda: held(here) == 0)


async def test_only_short_and_valid_targets_are_cached(here: RunningProxy, caller: Caller) -> None:
    here.proxy.http.targets = targets = kinds.KnownTargets(b"", 5)
    for number in range(12):
        for path in (
            f"/nothing/{number}",
            f"{PATH}?{number}{'x' * kinds.LONGEST_KNOWN}",
            f"/v2/models/m{number}/infer",
        ):
            await caller.send(request(path))
            await caller.reply()
    assert targets
    for number in range(12):
        async with here.caller() as stranger:
            await stranger.send(request(f"/v2/models/m{number}x/infer", key="tgk_wrong"))
            assert (await stranger.reply()).status == 401
    assert not [url for url in targets if url.endswith(b"x/infer")], "strangers leave nothing"
    assert 0 < len(targets) <= 5
    assert b"/v2/models/m11/infer" in targets, "later targets are cached too"
    assert all(len(each) <= kinds.LONGEST_KNOWN and target is not None for each, target in targets.items())


async def deaf_caller(here: RunningProxy) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", here.proxy.ports["http"]))
    return made


async def test_a_caller_that_reads_late_gets_all_responses_in_order(here: RunningProxy, caller: Caller) -> None:
    here.replica.act = answering(lambda received: received.body * 20_000)
    transport = caller.writer.transport
    transport.pause_reading()  # type: ignore[attr-defined]  # it is read from too
    caller.writer.write(b"".join(request(body=b"%04d" % number) for number in range(300)))
    await until(lambda: any(each._writing_paused for each in here.proxy.http.connections))
    transport.resume_reading()  # type: ignore[attr-defined]
    for number in range(300):
        reply = await caller.reply()
        assert reply.status == 200
        assert reply.body[:4] == b"%04d" % number


async def test_a_connection_that_is_ended_is_cut_when_its_caller_takes_nothing(tmp_path: Path) -> None:
    soon = replace(RIG, close_seconds=0.2)
    async with served(tmp_path, answering(bytes(8_000_000)), request_timeout_seconds=1, tunables=soon) as here:
        caller = await deaf_caller(here)
        caller.send(request())
        await until(lambda: here.replica.requests)
        await until(lambda: not here.proxy.http.connections, 5)
        caller.close()
