import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from tidegate_proxy.http.app_request import AppRequest
from tidegate_proxy.http.request import HttpRequest
from tidegate_proxy.routes import Route
from tidegate_proxy.telemetry.records import CallLog

from .running_proxy import (
    ENVELOPE,
    KEY,
    METADATA,
    MODEL,
    PATH,
    Caller,
    RunningProxy,
    model,
    request,
    running_proxy,
    served,
    until,
)
from .test_http_metrics import scrape, value
from .upstream import Received, Upstream, answering, echo, only, raw, reset, upstream

pytestmark = pytest.mark.anyio
slowly = answering(lambda received: received.body or b"none", seconds=0.1)
CHUNKED, END = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n"
PASSING_ON = "answer_came", "_leave_connection", "answer_began", "_begin", "answer_data", "_end_answer", "flush_answer"
cut_short = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", end="closed")
broken = Mock(side_effect=ZeroDivisionError("a defect"))


async def test_a_caller_that_half_closes_its_connection_gets_a_response_that_is_ready(caller: Caller) -> None:
    await caller.send(request("/whoami", method="GET"))
    caller.writer.write_eof()
    assert (await caller.reply()).status == 200


async def test_a_call_waits_for_the_answer_of_a_request_that_the_application_still_works_on(
    here: RunningProxy, caller: Caller
) -> None:
    go_on = asyncio.Event()
    here.replica.act = only("GET /v2 ", answering(b'{"name":"triton"}', go_on=go_on))
    await caller.send(request("/v2", method="GET"))
    await until(lambda: here.replica.requests)
    await caller.send(request())
    await until(lambda: any(each._queue for each in here.proxy.http.connections))
    go_on.set()
    assert [(await caller.reply()).body for _ in range(2)] == [b'{"name":"triton"}', b'{"ok":1}']


@pytest.mark.parametrize("first", [request(), METADATA, request("/healthz", method="GET", key=None)])
async def test_predict_is_answered_in_its_turn_too(here: RunningProxy, caller: Caller, first: bytes) -> None:
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
        assert len(here.replica.requests) == 1


async def test_no_response_follows_one_that_ends_the_connection_and_it_ends_immediately(
    here: RunningProxy, caller: Caller
) -> None:
    await caller.send(request("/healthz", b"", key=None, Transfer_Encoding="chunked") + b"0\r\n\r\n" + request())
    assert b"connection: close" in await caller.reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(0.8):
        assert b"HTTP/1.1" not in await caller.reader.read()
    assert not here.replica.requests


async def test_trailers_are_not_counted_with_the_headers_however_they_come(caller: Caller) -> None:
    fields = {f"X-{number}": "a" for number in range(200)}
    sent = request(PATH, b"", "POST", KEY, Transfer_Encoding="chunked", **fields)
    trailers = b"2\r\n{}\r\n0\r\n" + b"X-Trailer: a\r\n" * 100 + b"\r\n"
    for apart in (False, True):
        await caller.send(sent if apart else sent + trailers)
        if apart:
            await caller.send_apart(trailers)
        assert (await caller.reply()).status == 200


async def test_no_response_follows_a_truncated_one(here: RunningProxy, caller: Caller) -> None:
    here.replica.act = cut_short
    await caller.send(request() * 3)
    assert (await caller.reader.read()).endswith(b"\r\n\r\nhalf")
    assert len(here.replica.requests) == 1


@pytest.mark.parametrize(("path", "status"), [(f"/v2/models/{MODEL}", 405), ("/healthz", 405), ("/whoami", 500)])
async def test_the_answer_to_head_has_no_body_that_the_next_answer_would_follow(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, path: str, status: int
) -> None:
    if status == 500:
        monkeypatch.setattr(AppRequest, "_head", broken)
    for _ in range(3):
        await caller.send(request(path, method="HEAD"))
        assert (await caller.head())[0] == status
        await caller.send(METADATA)
        assert (await caller.reply()).status == 200


@pytest.mark.parametrize("size", [120_000, 60_000])
async def test_earlier_data_does_not_count_towards_a_heads_length(
    here: RunningProxy, caller: Caller, size: int
) -> None:
    """One read of the event loop can contain the end of a large body and the beginning of the next head."""
    here.replica.act = slowly
    body = b'{"inputs":["%b"]}' % (b"x" * size)
    data = request(body=body)
    await caller.send(data[:-size])
    await until(lambda: here.proxy.shared.open_calls)
    [connection] = here.proxy.http.connections
    connection.data_received(data[-size:] + request()[:50])
    await caller.send(request()[50:])
    async with asyncio.timeout(3):
        assert [len((await caller.reply()).body) for _ in range(2)] == [len(body), 13]


async def test_a_read_only_request_with_a_body_is_not_retried(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    async def reset_the_first(made: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        bodies.append(received.body)
        await (reset if len(bodies) == 1 else echo)(made, writer, received)

    data = METADATA[:-2] + b"Content-Length: 4\r\n\r\nbody"
    async with (
        upstream(reset_the_first) as one,
        upstream(reset_the_first) as other,
        running_proxy(tmp_path, one, other) as here,
    ):
        assert [(await here.ask(data, 5)).status for _ in range(8)] == [502, *[200] * 7]
        assert bodies == [b"body"] * 8
        bodies.clear()
        assert (await here.ask(METADATA, 5)).status == 200
        assert bodies == [b""] * 2


async def test_a_truncated_response_is_counted_and_logged_as_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with served(tmp_path, cut_short) as here:
        with pytest.raises(asyncio.IncompleteReadError):
            await here.ask()
        found = await scrape(here)
        assert value(found, "problems_total", type="upstream-failed") == 1
        assert value(found, "requests_total", status="502") == 1
        assert value(found, "requests_total", status="200") == 0
    [line] = [record.data for record in caplog.records if getattr(record, "data", {}).get("verb")]  # type: ignore[attr-defined]
    assert (line["status"], line["problem"]) == (502, "upstream-failed")


@pytest.mark.parametrize("at", ["version", "first_lines"])
@pytest.mark.parametrize("path", [PATH, "/predict"])
async def test_an_internal_error_is_a_response_and_a_log_line(
    here: RunningProxy,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    at: str,
) -> None:
    body = ENVELOPE % b"{}" if path == "/predict" else b"{}"
    data = request(path, body)
    for _ in range(3):  # until its route and its key are cached
        await caller.send(data)
        assert (await caller.reply()).status == 200
    caplog.clear()
    monkeypatch.setattr(Route, at, broken)
    for pieces in ([data], [data[:60], data[60:]], [data]):
        for piece in pieces[:-1]:
            await caller.send_apart(piece)
        await caller.send(pieces[-1])
        async with asyncio.timeout(3):
            reply = await caller.reply()
        assert (reply.status, reply.problem) == (500, "internal")
        assert reply.headers["x-request-id"] in caplog.text
    assert caplog.text.count("ZeroDivisionError: a defect") == 3
    monkeypatch.undo()
    await caller.send(data)
    assert (await caller.reply()).status == 200
    places = here.proxy.shared.limiter
    assert (places.in_flight, places.waiting, len(here.proxy.shared.open_calls)) == (0, 0, 0)


@pytest.mark.parametrize("at", ["__init__", "read_whole", "start", "take_body", "flush_request"])
async def test_an_internal_error_while_a_request_is_received_is_a_response_too(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    for _ in range(4):  # until the head has a pattern
        await caller.send(request(Accept="*/*"))
        assert (await caller.reply()).status == 200
    monkeypatch.setattr(HttpRequest, at, broken)
    await caller.send(request(Accept="*/*"))
    async with asyncio.timeout(3):
        reply = await caller.reply()
    assert (reply.status, reply.problem) == (500, "internal")
    assert "ZeroDivisionError: a defect" in caplog.text


async def test_an_internal_error_in_the_next_request_leaves_the_call_in_progress(
    here: RunningProxy, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    here.replica.act = answering(go_on=go_on)
    await caller.send(request())
    await until(lambda: here.replica.requests)
    monkeypatch.setattr(HttpRequest, "__init__", broken)
    await caller.send(request())
    await asyncio.sleep(0.05)
    go_on.set()
    assert (await caller.reply()).status == 200


@pytest.mark.parametrize(
    ("at", "statuses"), [("start", [200, 500, 500]), ("_head", [500, 500, 500]), ("end_body", [200, 500])]
)
async def test_internal_errors_of_the_application_are_responses_in_their_turn(
    here: RunningProxy,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    at: str,
    statuses: list[int],
) -> None:
    go_on = asyncio.Event()
    here.replica.act = only("GET /v2 ", answering(b"{}", go_on=go_on))
    await caller.send(request("/v2", method="GET"))
    await until(lambda: here.replica.requests)
    monkeypatch.setattr(AppRequest, at, broken)
    await caller.send(request("/whoami", method="GET") * 2)
    go_on.set()
    async with asyncio.timeout(3):
        assert [(await caller.reply()).status for _ in statuses] == statuses
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == statuses.count(500)


@pytest.mark.parametrize("at", PASSING_ON)
async def test_an_internal_error_while_a_response_is_passed_on_is_a_response_at_once(
    here: RunningProxy,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    at: str,
) -> None:
    if at not in ("answer_came", "_leave_connection"):
        here.replica.act = raw(CHUNKED, END, pause=0.1) if at == "flush_answer" else raw(CHUNKED + END)
    for _ in range(3):  # until the head of the response is cached
        await caller.send(request())
        assert (await caller.reply()).status == 200
    monkeypatch.setattr(HttpRequest, at, broken)
    await caller.send(request())
    async with asyncio.timeout(3):
        assert (await caller.reply()).status == 500
    assert "ZeroDivisionError: a defect" in caplog.text
    assert here.pool.replicas[0].breaker.failures == 0
    assert len(here.proxy.shared.open_calls) == 0


@pytest.mark.parametrize(("place", "at"), [(HttpRequest, "_end_answer"), (CallLog, "wants")])
async def test_an_internal_error_after_the_head_of_a_response_ends_the_connection(
    here: RunningProxy, caller: Caller, monkeypatch: pytest.MonkeyPatch, place: type, at: str
) -> None:
    here.replica.act = raw(CHUNKED, END, pause=0.1)
    monkeypatch.setattr(place, at, broken)
    await caller.send(request())
    with suppress(ConnectionError):
        async with asyncio.timeout(3):
            await caller.reader.read()
    assert len(here.proxy.shared.open_calls) == 0


async def test_a_defect_at_the_end_of_a_call_leaves_its_connection_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    async with served(tmp_path, answering(go_on=go_on), concurrency=1) as here:
        first = asyncio.ensure_future(here.ask())
        await until(lambda: here.replica.requests)
        second = asyncio.ensure_future(here.ask(seconds=3))
        await until(lambda: here.proxy.shared.limiter.waiting == 1)
        monkeypatch.setattr(CallLog, "wants", Mock(side_effect=[ZeroDivisionError("a defect"), False]))
        go_on.set()
        assert (await second).status == 200
        await asyncio.wait([first])
        assert (len(here.replica.requests), here.proxy.shared.limiter.in_flight) == (2, 0)


async def test_a_defect_in_a_queued_call_affects_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = asyncio.Event()
    async with served(tmp_path, answering(go_on=go_on), concurrency=1) as here:
        first = asyncio.ensure_future(here.ask())
        await until(lambda: here.replica.requests)
        second = asyncio.ensure_future(here.ask())
        await until(lambda: here.proxy.shared.limiter.waiting == 1)
        monkeypatch.setattr(Route, "first_lines", broken)
        go_on.set()
        assert (await first).status == 200
        assert (await second).status == 500
        assert here.proxy.shared.limiter.in_flight == 0


async def test_made_up_versions_do_not_prevent_caching_of_others(tmp_path: Path) -> None:
    async with served(tmp_path, models=[model(MODEL, {7: 100})]) as here, here.caller() as caller:
        for number in range(100, 300):
            await caller.send(request(f"/v2/models/{MODEL}/versions/{number}/infer"))
            assert (await caller.reply()).status == 200
        await caller.send(request())
        assert (await caller.reply()).headers["tidegate-model-version"] == "7"
        [route] = here.proxy.config.routes.of_server(None)
        assert ("infer", "7") in route._heads
        assert len(route._heads) <= 64
