import asyncio
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts import routing
from tidegate_proxy.openai.usage import Usage

from ..http.running_proxy import Reply, RunningProxy, request, served, until
from ..http.upstream import Act, Received, Upstream, answering, head, raw
from ..rigs.tables import CALLER
from .tables import access, model, table

CHAT = "/v1/chat/completions"
USAGE = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
WORD = {"choices": [{"delta": {"content": 'a "usage":{"prompt_tokens":9} b'}}], "usage": None}
SPACES = st.sampled_from([(",", ":"), (", ", ": ")])
MODELS = (model("plain"), model("shared", {1: 20, 2: 80}))


def event(value: object, separators: tuple[str, str] = (",", ":"), ends: str = "\n") -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, separators=separators)
    return f"data: {text}{ends}{ends}".encode()


def read(made: Usage, data: bytes, sizes: Sequence[int] = ()) -> bytes:
    went = b""
    for size in [*sizes, len(data)]:
        went += made.feed(data[:size])
        data = data[size:]
    return went + made.end()


@given(
    st.lists(st.sampled_from([WORD, {"choices": []}, {"usage": None}, "[DONE]"])), SPACES, st.lists(st.integers(1, 90))
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_unrequested_event_is_removed_and_nothing_else_changes(
    ends: str, before: list[Any], separators: tuple[str, str], sizes: list[int]
) -> None:
    seen, requested = [event(each, separators, ends) for each in before], {"choices": [], "usage": USAGE}
    made = Usage(True, True)
    data = b"".join((*seen, event(requested, separators, ends), event("[DONE]", ends=ends)))
    assert read(made, data, sizes) == b"".join((*seen, event("[DONE]", ends=ends)))
    assert made.reported() == (4, 3)
    made = Usage(True, False)
    assert read(made, data, sizes) == data
    assert made.reported() == (4, 3)


def test_events_are_handed_on_as_soon_as_they_are_whole() -> None:
    made, first = Usage(True, True), event(WORD)
    assert made.feed(first + event(WORD)[:9]) == first
    assert made.feed(event(WORD)[9:]) == event(WORD)
    long = b"data: " + b"x" * 20_000
    assert made.feed(long) == long, "none that is hidden is so long"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"choices": [{"text": "x" * 9000}], "usage": USAGE}, (4, 3)),
        ({"usage": USAGE | {"prompt_tokens_details": {"cached_tokens": 2}}, "prompt_logprobs": None}, (4, 3)),
        ({"usage": {"input_tokens": 4, "input_tokens_details": {}, "output_tokens": 3}, "store": False}, (4, 3)),
        ({"data": [[0.5] * 3000], "usage": {"prompt_tokens": 8, "total_tokens": 8}}, (8, 0)),
        ({"usage": USAGE, "tools": [{"usage": {"prompt_tokens": 0}}]}, (4, 3)),
        ({"usage": USAGE, "x": "y" * 9000}, (4, 3)),
        ({"usage": USAGE, "metadata": {"x": "y" * 9000, "usage": {"prompt_tokens": 1}}}, (4, 3)),
        ({"metadata": {"usage": {"input_tokens": 1, "a": "{"}, "b": "{"}, "usage": USAGE}, (4, 3)),
        ({"data": ["x" * 4070, {"usage": USAGE}, "x" * 4070]}, (4, 3)),
        ({"usage": None}, None),
        ({"choices": [{"text": json.dumps({"usage": USAGE})}]}, None),
    ],
)  # fmt: skip
def test_usage_is_found_at_any_place_of_a_response(answer: object, expected: tuple[int, int] | None) -> None:
    for size in (1, 100, 10**5):
        made, data = Usage(False, False), json.dumps(answer).encode()
        assert read(made, data, [size] * (len(data) // size)) == data
        assert made.reported() == expected
    assert made.estimated(400, 80) == 120, "a token is some four bytes"


# --- limits


def limited(tokens: int) -> routing.AccessTable:
    allowed = access((CALLER, ["*"], ["infer"]))
    return allowed.model_copy(
        update={"rate_limit": allowed.rate_limit.model_copy(update={"tokens_per_minute": tokens})}
    )


def data(name: str = "plain", **more: Any) -> bytes:
    return json.dumps({"messages": [], "model": name} | more).encode()


def answers(*parts: bytes, streams: bool = True) -> Act:
    """Respond with these parts, the last of them only on request."""
    start = head(b"content-type: text/event-stream", b"transfer-encoding: chunked")

    async def act(made: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        is_requested = (json.loads(received.body).get("stream_options") or {}).get("include_usage")
        chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (parts if is_requested else parts[:-1])]
        await raw(start, *chunks, b"0\r\n\r\n")(made, writer, received)

    return act if streams else answering(parts[0])


def tokens(here: RunningProxy) -> dict[tuple[str, str, str, str], int]:
    return dict(here.proxy.shared.meter.tokens)


def refused(reply: Reply) -> int:
    """The seconds after which a caller over its limit can retry."""
    assert reply.status == 429
    error = reply.json()["error"]
    assert (error["type"], error["code"]) == ("tokens", "rate_limit_exceeded")
    assert "tokens a minute" in error["message"]
    return int(reply.headers["retry-after"])


USED = json.dumps({"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 70}}).encode()


@pytest.mark.anyio
async def test_a_caller_over_its_token_limit_retries_when_the_tokens_are_made_up_for(tmp_path: Path) -> None:
    async with served(tmp_path, answers(USED, streams=False), table=table(MODELS), access=limited(100)) as here:
        assert (await here.ask(request(CHAT, data()))).status == 200
        assert 12 <= refused(await here.ask(request(CHAT, data()))) <= 14, "20 too many, at 100 a minute, and one more"
        assert (await here.ask(request(CHAT, data("shared")))).status == 200, "another model has its own"
        assert tokens(here) == {
            ("llm", name, "api-keys", part): number
            for name in ("plain", "shared")
            for part, number in (("prompt", 50), ("completion", 70))
        }
        problems = here.proxy.shared.meter.model_problems
        assert problems == {("llm", "plain", "rate-limited", "tokens"): 1}


@pytest.mark.anyio
async def test_usage_is_requested_of_a_stream_if_tokens_are_limited_and_hidden_from_the_caller(tmp_path: Path) -> None:
    act = answers(event(WORD), event(USED.decode()))
    for asks in (False, True):
        options = {"stream_options": {"include_usage": True}} if asks else {}
        async with served(tmp_path / f"{asks}", act, table=table(MODELS), access=limited(100)) as here:
            reply = await here.ask(request(CHAT, data("shared", stream=True, **options)))
            assert reply.body == event(WORD) + (event(USED.decode()) if asks else b"")
            sent = json.loads(here.replica.requests[-1].body)
            assert sent == {
                "messages": [], "model": f"shared-v{reply.headers['tidegate-model-version']}",
                "stream": True, "stream_options": {"include_usage": True},
            }  # fmt: skip
            assert tokens(here)["llm", "shared", "api-keys", "completion"] == 70
            refused(await here.ask(request(CHAT, data("shared", stream=True))))


@pytest.mark.anyio
async def test_tokens_of_streams_are_counted_without_a_limit_unseen_by_callers(
    tmp_path: Path,
) -> None:
    act = answers(event(WORD), event(USED.decode()))
    async with served(tmp_path, act, table=table(MODELS), access=access((CALLER, ["*"], ["infer"]))) as here:
        assert (await here.ask(request(CHAT, data(stream=True), Accept_Encoding="gzip"))).body == event(WORD)
        assert "accept-encoding" not in here.replica.requests[-1].headers, "the event could not be left out else"
        assert tokens(here)["llm", "plain", "api-keys", "prompt"] == 50
        body = data(stream=True, stream_options={"include_usage": True})
        assert (await here.ask(request(CHAT, body))).body == event(WORD) + event(USED.decode())
        assert tokens(here)["llm", "plain", "api-keys", "prompt"] == 100
        # How to request it is unclear, so the server gets the body unchanged.
        body = data(stream=True, stream_options={"x": "y" * 2000})
        await here.ask(request(CHAT, body))
        assert json.loads(here.replica.requests[-1].body) == json.loads(body)


CHUNK = event({"object": "chat.completion.chunk", "choices": [{"delta": {"content": "a"}}]})
FAILED = event({"error": {"message": "the engine died", "type": "InternalServerError", "code": 500}})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([CHUNK, event("[DONE]")], 200),
        ([CHUNK, FAILED, event("[DONE]")], 502),
        ([CHUNK, FAILED[:9], FAILED[9:], event("[DONE]")], 502),
        ([CHUNK, FAILED], 502),
        ([CHUNK, b"event: error\ndata: {}\n\n"], 502),
        ([CHUNK, b'data: {"error":\r\ndata: {"code": 500}}\r\n\r\n', event("[DONE]")], 502),
        ([CHUNK], 502),
        ([CHUNK, CHUNK[:20], CHUNK[20:]], 502),
        ([b"event: response.created\ndata: {}\n\n", b"event: response.completed\ndata: {}\n\n"], 200),
        ([b'event: response.failed\ndata: {"response":{"error":{"code":"server_error"}}}\n\n'], 502),
        ([event({"choices": [], "text": '\ndata: {"error": {}}'}), event("[DONE]")], 200),
        ([b""], 502),
        ([b": waiting\n\n"], 502),
        ([b": waiting\n\n", CHUNK, event("[DONE]")], 200),
        ([event({"choices": []})], 502),
        ([event({"choices": [], "text": "\ndata: [DONE]"})], 502),
        ([event({"id": "a", "choices": [{}], "error": {"code": 500}}), event("[DONE]")], 502),
        ([event({"choices": [], "error": None, "x": [{"error": 1}]}), event("[DONE]")], 200),
        ([event({"object": "error", "message": "the engine died"}), event("[DONE]")], 502),
        ([event({"type": "response.created", "response": {"error": None}})], 502),
        ([b"event: response.created\ndata: {}\n\n", event({"type": "response.in_progress"})], 502),
        ([event({"type": "response.failed"}), b"data: [DONE]\n\n"], 502),
        ([b"event: response.created\ndata: {}\n\n", event({"type": "response.content_part.added"})], 502),
        ([b'event: response.output_text.delta\ndata: {"delta":"\\"type\\":\\"response.completed\\""}\n\n'], 502),
        ([event({"response": {"error": None}, "type": "response.completed"})], 200),
        ([event({"x": "y" * 20_000, "type": "response.incomplete"})], 200),
        ([event({"response": {"error": {"code": "server_error"}}, "type": "response.failed"})], 502),
        ([b"event: response.incomplete\ndata: {}\n\n"], 200),
        ([gzip.compress(CHUNK)], 200),
        ([b'{"object": "list"}\n'], 200),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
async def test_a_stream_that_breaks_is_a_failure_in_metrics_and_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, parts: list[bytes], status: int, size: int
) -> None:
    pieces = [part[at : at + size] for part in parts for at in range(0, len(part), size)]
    async with served(tmp_path, answers(*pieces, b""), table=table(MODELS)) as here:
        with caplog.at_level("INFO", "tidegate_proxy.calls"):
            reply = await here.ask(request(CHAT, data(stream=True)))
        assert (reply.status, reply.body) == (200, b"".join(parts)), "the caller gets what the server sent"
        (count,) = here.proxy.shared.meter.calls.values()
        assert dict(count.statuses) == {status: 1}
        problems = {key[0] for key in here.proxy.shared.meter.problems}
        assert problems == ({"upstream-failed"} if status == 502 else set())
        line = next(each for each in caplog.records if each.name == "tidegate_proxy.calls")
        assert (line.levelname, line.data["status"]) == ("WARNING" if status == 502 else "INFO", status)  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_a_caller_that_leaves_before_the_usage_is_charged_the_received_tokens(tmp_path: Path) -> None:
    start = head(b"content-type: text/event-stream", b"transfer-encoding: chunked")
    word = b"%x\r\n%b\r\n" % (len(event(WORD)), event(WORD))
    async with served(tmp_path, raw(start, word * 90, pause=5), table=table(MODELS), access=limited(100)) as here:
        async with here.caller() as caller:
            await caller.send(request(CHAT, data(stream=True, x="y" * 80)))
            await caller.head()
            for _ in range(90):
                await caller.reader.readuntil(b"\n\n")
        await until(lambda: not here.proxy.shared.open_calls)
        refused(await here.ask(request(CHAT, data())))
        assert not tokens(here), "which is not a count of reported tokens"


@pytest.mark.anyio
async def test_a_response_is_not_compressed_if_its_usage_must_be_read(tmp_path: Path) -> None:
    async def act(made: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        packed = "gzip" in received.headers.get("accept-encoding", "")
        await answering(gzip.compress(USED) if packed else USED)(made, writer, received)

    asking = {"Accept-Encoding": "gzip, br", "X-Accept-Encoding": "x"}
    for bound, answer in ((limited(100), USED), (access((CALLER, ["*"], ["infer"])), None)):
        async with served(tmp_path / str(answer is None), act, table=table(MODELS), access=bound) as here:
            reply = await here.ask(request(CHAT, data(), **asking))
            assert here.replica.requests[-1].headers["x-accept-encoding"] == "x"
            assert (reply.body == USED) is (answer is not None)
            assert tokens(here).get(("llm", "plain", "api-keys", "completion")) == (None if answer is None else 70)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "wish",
    [
        *(b'"stream":%b' % value for value in (b"1", b'"true"', b'"off"', b"[]", b"{}")),
        b'"stream":true,"stream_options":[1]',
        b'"stream":true,"stream_options":{"x":"%b"}' % (b"y" * 2000),
    ],
)
async def test_a_stream_without_usage_is_refused_if_tokens_are_limited(tmp_path: Path, wish: bytes) -> None:
    body = b'{"model":"plain",%b}' % wish
    async with served(tmp_path / "limited", table=table(MODELS), access=limited(100)) as here:
        reply = await here.ask(request(CHAT, body))
        assert (reply.status, reply.json()["error"]["code"]) == (400, "malformed")
        assert "`stream` must be true or false" in reply.json()["error"]["message"]
        assert not here.replica.requests
        assert (await here.ask(request(CHAT, data(stream=None)))).status == 200
    async with served(tmp_path / "not", table=table(MODELS), access=access((CALLER, ["*"], ["infer"]))) as here:
        assert (await here.ask(request(CHAT, body))).status == 200
        assert json.loads(here.replica.requests[-1].body) == json.loads(body)


@pytest.mark.anyio
async def test_an_error_uses_nothing(tmp_path: Path) -> None:
    act = raw(head(b"content-length: 500", status=b"400 Bad Request"), b"x" * 500)
    async with served(tmp_path, act, table=table(MODELS), access=limited(1)) as here:
        for _ in range(3):
            assert (await here.ask(request(CHAT, data()))).status == 400
