"""RFC 9110's and 9112's rules for intermediaries: targets, headers of one connection, trailers, chunks."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .running_proxy import BODY, ENVELOPE, KEY, PATH, Caller, RunningProxy, request, served
from .upstream import answering

pytestmark = pytest.mark.anyio


# --- targets
@pytest.mark.parametrize("before", ["http://proxy", "HTTPS://other.example:8443", "http://[::1]:80"])
async def test_a_target_may_name_the_host_too(here: RunningProxy, before: str) -> None:
    """RFC 9112, 3.2.2: a server MUST accept it."""
    for _ in range(3):  # the third head is cached
        assert (await here.ask(request(before + PATH))).status == 200
    assert (await here.ask(request(f"{before}/predict?x", ENVELOPE % b"{}"))).status == 200
    assert (await here.ask(request(f"{before}/healthz", method="GET"))).json() == {"status": "ok"}
    assert (await here.ask(request(f"{before}/v2/models/other/infer"))).problem == "unknown"
    assert [each.line for each in here.replica.requests] == [f"POST {PATH} HTTP/1.1"] * 4
    assert {each.headers["host"] for each in here.replica.requests} == {"pool.test"}


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://proxy", 404),
        ("http://proxy?x=/healthz", 404),
        ("http://proxy//v2/models/resnet", 404),
        ("http://proxy/v2/models/../resnet", 404),
        ("http://user@proxy/healthz", 400),
        ("http:///healthz", 400),
        ("ftp://proxy/healthz", 400),
        ("*", 400),
    ],
)
async def test_an_invalid_target_is_refused(here: RunningProxy, target: str, status: int) -> None:
    assert (await here.ask(request(target, method="GET"))).status == status
    assert not here.replica.begun


# --- headers of one connection
async def test_headers_that_connection_nominates_go_no_further(here: RunningProxy) -> None:
    """RFC 9110, 7.6.1: an intermediary MUST remove them."""

    here.replica.act = answering(head="Connection: x-own, Keep-Alive\r\nX-Own: 1\r\nX-Kept: 2\r\n")
    for _ in range(3):
        reply = await here.ask(request(Connection="keep-alive, X-Foo ,x-bar", X_Foo="1", X_Kept="2", X_BAR="3"))
        assert {"x-own", "x-kept"} & reply.headers.keys() == {"x-kept"}
    await here.ask(request(X_Foo="4", Connection="keep-alive"))
    names = ["x-foo", "x-bar", "x-kept", "connection"]
    found = [[name for name in names if name in each.headers] for each in here.replica.requests]
    assert found == [["x-kept"]] * 3 + [["x-foo"]]


async def test_connection_cannot_nominate_the_proxys_own_headers(here: RunningProxy) -> None:
    nominated = "Host, Content-Length, X-Request-Id, X-API-Key, close"
    assert (await here.ask(request(Connection=nominated, X_Request_Id="order-7"))).status == 200
    (received,) = here.replica.requests
    assert (received.headers["host"], received.headers["x-request-id"], received.body) == ("pool.test", "order-7", BODY)


# --- chunked bodies
async def test_a_credential_in_a_trailer_is_ignored(here: RunningProxy) -> None:
    """RFC 9110, 6.5.1: trailers are not headers."""
    for path, method in ((PATH, "POST"), ("/v2", "GET"), ("/whoami", "GET")):
        data = request(path, b"", method, key=None, Transfer_Encoding="chunked")
        reply = await here.ask(data + b"0\r\nX-API-Key: %b\r\n\r\n" % KEY.encode())
        assert (reply.status, reply.problem) == (401, "unauthenticated")
    assert not here.replica.requests


async def test_extensions_and_trailers_are_passed_over(here: RunningProxy, caller: Caller) -> None:
    body = b'd;name="value"\r\n%b\r\n0;last\r\nX-Foo: 1\r\nX-Bar: 2\r\n\r\n' % BODY
    for part in (request(Transfer_Encoding="chunked")[: -len(BODY)] + body, request()):
        await caller.send(part)
        assert (await caller.reply()).status == 200
    assert [each.body for each in here.replica.requests] == [BODY, BODY]
    assert not any("x-foo" in each.headers for each in here.replica.requests)


@pytest.mark.parametrize("path", ["/predict", PATH])
@pytest.mark.parametrize("size", [b"f4241\r\n", b"FFFFFFFFFFFF;x=y\r\n", b"5\r\nhello\r\n" + b"f4240\r\n"])
@pytest.mark.parametrize("cut", [0, 1, 3, 7])
async def test_a_chunk_above_the_body_limit_is_refused_before_it_arrives(
    here: RunningProxy, path: str, size: bytes, cut: int
) -> None:
    """The limit in this test is 1,000,000 bytes: 0xf4240."""
    data = request(path, b"", Transfer_Encoding="chunked") + size
    async with here.caller() as caller:
        await caller.send_apart(data[: len(data) - cut])
        if cut:
            await caller.send(data[len(data) - cut :])
        async with asyncio.timeout(5):
            reply = await caller.reply()
        assert (reply.status, reply.problem) == (413, "too-large")
        assert await caller.ended()


@given(
    sizes=st.lists(st.integers(1, 40_000), max_size=6),
    extension=st.sampled_from([b"", b";x", b";ffffffffff=1"]),
    cuts=st.lists(st.integers(1, 9_000), max_size=20),
)
@settings(max_examples=20)
def test_chunks_within_the_limit_all_go_on_however_they_come(
    sizes: list[int], extension: bytes, cuts: list[int]
) -> None:
    """Including chunks whose data looks like the size of a chunk that is too large."""
    parts = [(b"\r\nffffffff\r\n" * size)[:size] for size in sizes]
    chunks = [b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts]
    data = request(body=b"", Transfer_Encoding="chunked") + b"".join(chunks) + b"0\r\n\r\n"

    async def run(root: Path) -> None:
        async with served(root) as here, here.caller() as caller:
            at = 0
            for cut in [*cuts, len(data)]:
                await caller.send_apart(data[at : at + cut]) if data[at : at + cut] else None
                at += cut
            assert (await caller.reply()).status == 200
            assert [each.body for each in here.replica.requests] == [b"".join(parts)]

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


async def test_chunks_of_one_request_do_not_count_for_the_next(tmp_path: Path) -> None:
    start, size = request(body=b"", Transfer_Encoding="chunked"), 700_000  # Twice that is too large.
    async with served(tmp_path) as here, here.caller() as caller:
        await caller.send(start + b"%x\r\n" % size + b"x" * size + b"\r\n0\r\n\r\n")
        assert (await caller.reply()).status == 200
        await caller.send_apart(start + b"%x" % size)
        await caller.send(b"\r\n" + b"x" * size + b"\r\n0\r\n\r\n")
        assert (await caller.reply()).status == 200


@pytest.mark.parametrize("path", ["/predict", PATH])
@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"0\r\n", b"X: " + b"a" * 9_000 + b"\r\n"), (b"0\r\nX: ", b"a" * 9_000), (b"2;x=", b"a" * 9_000)],
)
async def test_extensions_and_trailers_are_limited(caller: Caller, path: str, begin: bytes, more: bytes) -> None:
    await caller.send(request(path, b"", Transfer_Encoding="chunked") + b"2\r\n{}\r\n" + begin)
    answered = asyncio.ensure_future(caller.reply())
    for _ in range(100):
        if not answered.done():
            await caller.send(more)
            await asyncio.sleep(0)
    async with asyncio.timeout(5):
        reply = await answered
    assert (reply.status, reply.problem) == (431, "headers-too-large")


async def test_framing_of_slow_small_chunks_does_not_count_as_extensions(here: RunningProxy, caller: Caller) -> None:
    await caller.send(request(Transfer_Encoding="chunked")[: -len(BODY)])
    for _ in range(20):
        for part in (b"5;x=%b\r" % bytes(b"y" * 9_000), b"\n", b"he", b"llo", b"\r\n"):
            await caller.send_apart(part)
    await caller.send(b"0\r\n\r\n")
    assert (await caller.reply()).status == 200
    assert here.replica.requests[0].body == b"hello" * 20


# --- invalid envelopes
