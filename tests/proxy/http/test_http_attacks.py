import asyncio
import re
from dataclasses import replace

import pytest
from tidegate_proxy.settings import Tunables

from ..test_paths import CONTROL, TRICKS
from .running_proxy import BODY, KEY, MODEL, PATH, RIG, Caller, Reply, RunningProxy, request
from .upstream import raw

pytestmark = pytest.mark.anyio
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: proxy\r\nX-API-Key: {KEY}\r\n".encode()
SMUGGLED = b"GET /v2/models/resnet/config HTTP/1.1\r\nHost: proxy\r\n\r\n"


@pytest.fixture
def tunables() -> Tunables:
    return replace(RIG, linger_seconds=0.1)


async def all_that_comes(caller: Caller, data: bytes, seconds: float = 5) -> bytes:
    """Send the data, and return everything until the proxy closes the connection or stops sending."""
    await caller.send(data)
    found = b""
    try:
        async with asyncio.timeout(seconds):
            while part := await caller.reader.read(1 << 16):
                found += part
    except (TimeoutError, ConnectionError):
        pass
    return found


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Content-Length: 4, 5\r\n",
        b"Content-Length: +4\r\n",
        b"Content-Length: 4 \r\n 5\r\n",
        b"Content-Length: 0x4\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"X: a\r\n b\r\nContent-Length: 4\r\n",
        b"X: a\nContent-Length: 4\r\n",
        b"X\0: a\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nHost: other\r\n",
        b"Content-Length: 4\r\nX-API-Key: other\r\n",
    ],
)
async def test_a_request_of_two_readings_is_refused_and_ends_its_connection(
    here: RunningProxy, caller: Caller, head: bytes
) -> None:
    received = await all_that_comes(caller, HEAD + head + b"\r\n" + b"0\r\n\r\n" + SMUGGLED)
    assert received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")), received[:200]
    assert len(re.findall(rb"HTTP/1.1 \d\d\d", received)) == 1
    assert not here.replica.begun


@pytest.mark.parametrize("version", [b"", b" HTTP/0.9", b" HTTP/2.0"])
@pytest.mark.parametrize("path", [b"/v2/health/live", b"/v2/models/%b" % MODEL.encode()])
@pytest.mark.parametrize("kept", [b"", b"Connection: keep-alive\r\n"])
async def test_an_unsupported_http_version_is_refused(
    here: RunningProxy, caller: Caller, version: bytes, path: bytes, kept: bytes
) -> None:
    head = b"GET %b%b\r\nHost: proxy\r\nX-API-Key: %b\r\n%b\r\n" % (path, version, KEY.encode(), kept)
    received = await all_that_comes(caller, head)
    assert received.startswith(b"HTTP/1.1 400"), received[:200]
    assert b"/malformed" in received
    assert not here.replica.begun


async def test_a_header_that_only_contains_content_length_is_another_header(here: RunningProxy, caller: Caller) -> None:
    await caller.send(HEAD + b"Inference-Header-Content-Length: 7\r\nContent-Length: 13\r\n\r\n" + BODY)
    assert (await caller.reply()).status == 200
    assert here.replica.requests[0].body == BODY
    assert here.replica.requests[0].headers["inference-header-content-length"] == "7"


@pytest.mark.parametrize("extra", [b"", b"Expect: x\r\n"])
async def test_a_length_can_have_thousands_of_leading_zeros(
    here: RunningProxy, caller: Caller, extra: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 9110, 8.6: a length consists of digits. Python's int() parses at most 4,300 of them."""
    await caller.send(HEAD + extra + b"Content-Length: " + b"0" * 5_000 + b"%d\r\n\r\n" % len(BODY) + BODY)
    assert (await caller.reply()).status == 200
    assert [each.body for each in here.replica.requests] == [BODY]
    await caller.send(b"GET /healthz HTTP/1.1\r\nHost: proxy\r\nContent-Length: " + b"0" * 5_000 + b"\r\n\r\n")
    assert (await caller.reply()).status == 200
    long = b"\r\nContent-Length: " + b"0" * 5_000 + b"2\r\n\r\n{}"
    here.replica.act = raw(b"HTTP/1.1 200 OK" + long)
    await caller.send(request())
    reply = await caller.reply()
    assert (reply.status, reply.body) == (200, b"{}")
    assert "defect" not in caplog.text
    assert "could not be" not in caplog.text


WISH = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(BODY)


@pytest.mark.parametrize(
    "sent",
    [
        [HEAD + WISH + LENGTH + BODY],
        [HEAD + WISH + LENGTH, BODY],
        [HEAD + WISH + LENGTH + BODY[:3], BODY[3:]],
        [HEAD + WISH + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(BODY), BODY), b"0\r\n\r\n"],
    ],
)
async def test_an_upgrade_to_http2_is_ignored_and_the_body_follows(
    here: RunningProxy, caller: Caller, sent: list[bytes]
) -> None:
    """`curl --http2` and Java's HttpClient send such an `Upgrade` with their first request."""
    for _ in range(2):
        for part in sent[:-1]:
            await caller.send_apart(part)
        await caller.send(sent[-1])
        assert (await caller.reply()).status == 200
    await caller.send(b"GET /v2/health/live HTTP/1.1\r\nHost: proxy\r\n" + WISH + b"Content-Length: 5\r\n\r\nhello")
    assert (await caller.reply()).status == 200
    await caller.send(request())
    assert (await caller.reply()).status == 200
    assert [each.body for each in here.replica.requests] == [BODY] * 3
    assert not any("upgrade" in each.headers or "http2-settings" in each.headers for each in here.replica.requests)


async def test_data_after_an_upgrade_to_http2_is_neither_http2_nor_a_smuggled_request(
    here: RunningProxy,
) -> None:
    for data, number in (
        (HEAD + WISH + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED, 1),
        (HEAD + WISH + LENGTH + BODY + SMUGGLED, 2),
        (HEAD + WISH + b"Connection: close\r\n" + LENGTH + BODY + SMUGGLED, 1),
        (HEAD + WISH + LENGTH + BODY + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 2),
    ):
        async with here.caller() as caller:
            received = await all_that_comes(caller, data, 1)
        found = re.findall(rb"HTTP/1.1 (\d\d\d)", received)
        assert len(found) <= number, (data, received)
        assert found[0] == b"200", (data, received)
    assert all("/infer " in each.line for each in here.replica.requests)


async def test_no_trick_of_a_path_reaches_a_replica(here: RunningProxy) -> None:
    for path in (*TRICKS[:20], *CONTROL):
        for method in ("GET", "POST"):
            reply = await here.ask(request(path, b"", method))
            assert reply.status in (400, 404, 405), (path, reply)
            assert not here.replica.begun, path


async def test_headers_too_long_are_refused_whether_they_end_or_not(here: RunningProxy) -> None:
    for data in (
        HEAD + b"X: " + b"a" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"X: " + b"a" * 200_000,
        HEAD + b"X: y\r\n" * 20_000,
        b"GET /" + b"a" * 200_000,
        HEAD + b"X: " + b"a" * 40_000 + b"PAUSE" + b"a" * 40_000,
    ):
        async with here.caller() as caller:
            first, _, later = data.partition(b"PAUSE")
            await (caller.send_apart(first) if later else caller.send(first))
            received = await all_that_comes(caller, later, 3)
        assert received[9:12] in (b"431", b"404"), received[:100]
    assert not here.replica.begun


async def test_problem_texts_cannot_inject_headers(here: RunningProxy) -> None:
    for data in (
        request(f"/v2/models/{MODEL}%0d%0aX-Evil:%201/infer"),
        request(X_Request_Id="a\tb"),
        request("/predict", b'{"inference_server_name":"vision","model_name":"a\\r\\nX-Evil: 1","payload":{}}'),
    ):
        async with here.caller() as caller:
            await caller.send(data)
            assert "evil" not in str(await caller.head()).lower()


@pytest.mark.parametrize("tunables", [replace(RIG, head_seconds=0.5)])
async def test_a_caller_that_sends_a_head_too_slowly_is_disconnected(caller: Caller) -> None:
    answered = asyncio.ensure_future(caller.reply())
    for sign in b"POST / HTTP/1.1\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaa":
        if not answered.done():
            await caller.send(bytes([sign]))
            await asyncio.sleep(0.1)
    reply: Reply = await answered
    assert (reply.status, reply.problem) == (408, "request-timeout")
