"""What Triton says went wrong comes to the caller, and into the log: short, and without paths or tracebacks."""

import gzip
import json
import logging
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_proxy.http.events import ErrorEvents
from tidegate_proxy.told_errors import MOST_ERROR, UNREADABLE
from tidegate_service.reasons import MOST, MOST_TOLD, plain

from .running_proxy import MODEL, RunningProxy, request, served
from .upstream import Act, head, raw

pytestmark = pytest.mark.anyio
RAISED = "Failed to process the request(s) for model instance 'm_0', message: ValueError: no"
SAID = f"{RAISED} in /models/m/1/model.py\n\nAt:\n  /models/m/1/model.py(7): execute\n"
TOLD = f"{RAISED} in model.py"
BODY = json.dumps({"error": SAID}).encode()
JSON = b"Content-Type: application/json"
BAD = b"500 Internal Server Error"


def saying(body: bytes, *, chunked: bool = False) -> Act:
    if chunked:
        parts = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:40], body[40:]) if part]
        return raw(head(JSON, b"Transfer-Encoding: chunked", status=BAD), *parts, b"0\r\n\r\n", pause=0.01)
    return raw(head(JSON, b"Content-Length: %d" % len(body), status=BAD), body[:40], body[40:], pause=0.01)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_caller_reads_what_was_wrong_without_paths_and_tracebacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, chunked: bool
) -> None:
    caplog.set_level(logging.INFO, "tidegate_proxy.calls")
    async with served(tmp_path, saying(BODY, chunked=chunked)) as here:
        asked = {"inference_server_name": "vision", "model_name": MODEL, "payload": {"inputs": []}}
        for data in (request(), request("/predict", json.dumps(asked).encode())):
            reply = await here.ask(data)
            assert (reply.status, reply.json()) == (500, {"error": TOLD})
            assert reply.headers["content-type"] == "application/json"
            assert reply.headers["x-request-id"]
    said = [vars(record)["said"] for record in caplog.records]
    assert [(each["why"], each["pool"], each["server"], each["model"]) for each in said] == [
        (TOLD[:MOST], "main", "vision", MODEL)
    ] * 2
    assert said[0]["replica"]
    assert not {"problem", "reason"} & said[0].keys()


@pytest.mark.parametrize("body", [b"", b'{"error":"unexpected  shape"}', b'{ "error" : "no" }', b'{"error":""}'])
async def test_an_error_with_nothing_to_hide_comes_byte_for_byte(tmp_path: Path, body: bytes) -> None:
    async with served(tmp_path, saying(body)) as here, here.caller() as caller:
        for _ in range(2):  # over one connection, which is kept
            await caller.send(request())
            reply = await caller.reply()
            assert (reply.status, plain(reply.body.decode())) == (500, plain(body.decode()))
    assert reply.body == body or b"  " in body


async def test_a_long_error_is_cut_and_one_that_is_no_json_is_told_as_one(tmp_path: Path) -> None:
    for body in (json.dumps({"error": "x" * 3 * MOST_ERROR}).encode(), b"{" + b"y" * 2 * MOST_ERROR, b"/a/b/c is bad"):
        async with served(tmp_path / str(len(body)), saying(body)) as here:
            reply = await here.ask()
            assert len(reply.json()["error"]) <= MOST_TOLD
            assert "/" not in reply.json()["error"]


@pytest.mark.parametrize(
    ("encoding", "pack", "told"),
    [
        *((b"gzip", gzip.compress, TOLD), (b"deflate", zlib.compress, TOLD), (b"Identity", bytes, TOLD)),
        (b"br", lambda body: body[::-1], json.loads(UNREADABLE)["error"]),
    ],
)
async def test_an_error_that_comes_compressed_is_told_like_any_other_or_said_to_be_unreadable(
    tmp_path: Path, encoding: bytes, pack: Callable[[bytes], bytes], told: str
) -> None:
    body = pack(BODY)
    begin = head(JSON, b"Content-Encoding: " + encoding, b"Content-Length: %d" % len(body), status=BAD)
    async with served(tmp_path, raw(begin, body)) as here:
        reply = await here.ask(request(Accept_Encoding="gzip, deflate, br"))
        assert (reply.status, "content-encoding" in reply.headers) == (500, False)
        assert reply.json() == {"error": told}


async def test_an_error_that_is_cut_short_is_an_answer_that_was_not_whole(tmp_path: Path) -> None:
    act = raw(head(JSON, b"Content-Length: 500", status=BAD), BODY[:60], end="cut")
    async with served(tmp_path, act) as here:
        reply = await here.ask()
        assert (reply.status, reply.problem) == (502, "upstream-failed")
        assert b"/models" not in reply.body


async def test_an_error_in_a_stream_of_events_is_plain_too(tmp_path: Path) -> None:
    events = b'data: {"text":"/not/an/error"}\n\ndata: %b\n\n' % BODY
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (events[:37], events[37:90], events[90:])]
    begin = head(b"Content-Type: text/event-stream", b"Transfer-Encoding: chunked")
    async with served(tmp_path, raw(begin, *chunks, b"0\r\n\r\n", pause=0.01)) as here:
        reply = await here.ask(request(f"/v2/models/{MODEL}/generate_stream"))
        assert (
            reply.body.decode()
            == f'data: {{"text":"/not/an/error"}}\n\ndata: {json.dumps({"error": TOLD}, separators=(",", ":"))}\n\n'
        )


ERRORS = [
    b'data: {"error":"%b"}', b'data: {"error": {"message": "%b"}}', b'data:{"error":"%b"}', b'data: { "error" : "%b"}',
    b'data: {"object":"error","message":"%b"}', b'data: {"object": "error", "message": "%b"}',
    b'data: {"type":"error","message":"%b"}', b'data: {"type":"response.failed","response":{"error":"%b"}}',
]  # fmt: skip
"""Data that tell an error, whatever their event is called: of Triton, vLLM, SGLang, Dynamo, and OpenAI's own."""
NAMED = [b"event: error\n: %b", b"event: error\ndata: {%b}", b"event:response.failed\r\ndata: {%b}\r"]
"""Events that are called errors, whatever their data are."""
OTHERS = [
    b'data: {"text":"model.py"}', b": model.py", b'data: {"type":"response.created","x":"model.py"}', b"x" * 50,
    b'data: {"err":"model.py"', b"event: errors\ndata: model.py",
]  # fmt: skip
LINES = st.sampled_from([*(each + b"\n" for each in (*ERRORS, *NAMED, *OTHERS)), b""])


@given(st.lists(LINES), st.lists(st.integers(1, 60)), st.booleans())
def test_events_come_whole_and_in_order_in_whatever_pieces_they_come(
    lines: list[bytes], sizes: list[int], ends: bool
) -> None:
    events = ErrorEvents(lambda body: body.replace(b"model.py", b"m"))
    data, went = (b"\n".join(line.replace(b"%b", b"model.py") for line in lines) + (b"\n" if ends else b"")), b""
    kept = (line if line.removesuffix(b"\n") in OTHERS else line.replace(b"%b", b"m") for line in lines)
    expected = b"\n".join(kept) + (b"\n" if ends else b"")
    for size in [*sizes, len(data)]:
        went += events.feed(data[:size])
        data = data[size:]
    assert went + events.end() == expected


@pytest.mark.parametrize("size", [1, 1000, 10 * MOST_ERROR])
def test_of_an_error_event_that_is_too_long_the_rest_is_left_out(size: int) -> None:
    told: list[bytes] = []

    def plain_error(body: bytes) -> bytes:
        told.append(body)
        return b"{}"

    data = b'data: {"error":"' + b"/x" * MOST_ERROR + b'"}\n\ndata: {"a":1}\n'
    events, went = ErrorEvents(plain_error), b""
    for start in range(0, len(data), size):
        went += events.feed(data[start : start + size])
    assert went + events.end() == b'data: {}\n\ndata: {"a":1}\n'
    assert len(told) == 1
    assert len(told[0]) <= MOST_ERROR + 1


async def test_what_is_looked_at_without_a_lease_is_plain_too(here: RunningProxy) -> None:
    here.replica.act = saying(BODY)
    for path in ("/v2", "/v2/models/stats", f"/v2/models/{MODEL}/config"):
        reply = await here.ask(request(path, method="GET"))
        assert reply.json() == {"error": TOLD}, path
