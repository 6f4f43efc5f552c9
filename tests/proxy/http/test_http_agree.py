"""The fast path and the slow path give the same responses, whatever is cached and however the bytes arrive."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tidegate_contracts import routing
from tidegate_proxy.http.head import Shapes
from tidegate_proxy.telemetry.records import CallLog
from tidegate_proxy.upstream.breaker import Breaker

from ..rigs.issuer import Issuer
from .running_proxy import KEY, Caller, RunningProxy, model, served
from .upstream import Act, Received, head, headers_of, raw

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_secret_in_the_log")]
GOOD = ["key", "key as token", "token", "token, oddly"]
BAD = ["key of Domino", "expired token", "broken token", "stranger", "wrong key", "other scheme", "two", "none"]
CANARY = b"GET /healthz HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n"
TENSOR = b"TENSOR-THAT-NOBODY-LOGS"
MODELS = ["resnet", model("split", {1: 20, 2: 80}), "seen", "hidden"]


@pytest.fixture
def credentials(identity_provider: Issuer) -> dict[str, str]:
    good, late = (identity_provider.token("alice", ["callers"], seconds=seconds) for seconds in (3600, -3600))
    return {
        "key": f"X-API-Key: {KEY}",
        "key of Domino": f"x-domino-api-key: {KEY}",
        "key as token": f"Authorization: Bearer {KEY}",
        "token": f"Authorization: Bearer {good}",
        "token, oddly": f"AUTHORIZATION:bearer  {good} ",
        "expired token": f"Authorization: Bearer {late}",
        "broken token": f"Authorization: Bearer {good[:-4]}AAAA",
        "stranger": f"Authorization: Bearer {identity_provider.token('mallory', ['others'])}",
        "wrong key": "X-API-Key: tgk_wrong",
        "other scheme": "Authorization: Basic eDp5",
        "two": f"X-API-Key: {KEY}\r\nAuthorization: Bearer {good}",
        "none": "",
    }


@pytest.fixture
async def here(tmp_path: Path, identity_provider: Issuer) -> AsyncIterator[RunningProxy]:
    access = routing.AccessTable(
        issuers=(identity_provider.entry,),
        rules=(_rule("all", ("infer", "inspect"), "resnet", "split"), _rule("look", ("inspect",), "seen")),
        rate_limit=routing.RateLimit(requests_per_minute=10_000_000, burst=10_000_000),
    )
    async with served(tmp_path, models=MODELS, access=access) as made:
        made.proxy.shared.call_log, made.proxy.http.shapes = CallLog(0.0), Shapes(0.0)
        yield made


def _rule(name: str, actions: tuple[routing.Action, ...], *models: str) -> routing.AccessRule:
    return routing.AccessRule(
        name=name, principals=("ci",), groups=("callers",), actions=actions, servers=("vision",), models=models
    )


# --- requests
names = ["resnet", "split"]
odd_names = ["seen", "hidden", "absent", "%72esnet", "..", "resnet;x", "stats"]
verbs = ["/infer", "/infer", "/generate", "/generate_stream", "/ready", "/config", "/stats", ""]
prefixes = ["", "", "/servers/vision"]
versions = ["", "", "/versions/3"]
queries = ["", "", "?a=b"]
extra = [
    "Content-Type: application/json", "Accept: */*", "traceparent: 00-ab-cd-01", "X-Empty:", "X-Twice: 1",
    "X-Twice: 2", "Cookie: a=b", "TE: trailers", "Keep-Alive: 5", "Content-Encoding: identity", "Upgrade: h2c",
    "Inference-Header-Content-Length: 2", "INFERENCE-HEADER-CONTENT-LENGTH:2", "x-Odd: \xe9", "X-Tab:\ta\t",
    "X-Request-Id: mine-1", "X-Request-Id: not mine", "Request-Timeout: 9", "request-timeout: never",
    "Tidegate-Sticky: me", "tidegate-control: guess", "Proxy-Authorization: Basic eA==", "Trailer: X",
    "Connection: keep-alive", "Connection: close", "Connection: X-Twice", "Expect: 100-continue", "Expect: x",
]  # fmt: skip
odd_extra = [
    "Connection: Upgrade, close", "Connection: Upgrade", "Transfer-Encoding: gzip", "Content-Length: 3", " folded",
    "X :y",
]  # fmt: skip
bodies = st.one_of(
    st.sampled_from([b"", b"{}", b'{"inputs":[]}', b'{"inputs":["%b"]}' % TENSOR, CANARY]),
    st.binary(max_size=60),
    st.binary(min_size=1, max_size=8).map(lambda seed: seed * 9000),
)


@st.composite
def predicts(draw: st.DrawFn) -> bytes:
    fields = {
        "inference_server_name": draw(st.sampled_from(["vision"] * 5 + ["other", "../x"])),
        "model_name": draw(st.sampled_from(["resnet"] * 5 + ["seen", "hidden", "a\r\nb"])),
        "model_version": draw(st.sampled_from([None, None, "", "3", 3, 3.0, 2.5, 1e300, 0, "x"])),
        "payload": draw(st.sampled_from([{"inputs": []}, {"inputs": [TENSOR.decode()]}, [], "text"])),
    }
    left_out = draw(st.sampled_from([""] * 6 + list(fields)))
    fields.pop(left_out, None)
    whole = json.dumps(fields).encode()
    return whole[: -draw(st.sampled_from([0] * 6 + [1, 9])) or None]


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[bytes], str, bytes]:
    """Return a request as head lines without a credential, the credential's name, and the encoded body."""
    odd = draw(st.sampled_from(["nothing", "nothing", "path", "credential", "headers", "method", "everything"]))

    def one_of(usual: list[str], unusual: list[str], what: str) -> str:
        return draw(st.sampled_from(unusual if odd in (what, "everything") else usual))

    predict = draw(st.sampled_from([False, False, True]))
    if predict:
        path = "/predict"
    else:
        path = one_of(prefixes, [*prefixes, "/servers/other", "/servers/%2e"], "path") + "/v2/models/"
        path += one_of(names, odd_names, "path") + one_of(versions, [*versions, "/versions/0"], "path")
        path += one_of(verbs, [*verbs, "/load"], "path")
    lines = draw(st.lists(st.sampled_from(extra + (odd_extra if odd in ("headers", "everything") else [])), max_size=4))
    if "split" in path and "Tidegate-Sticky: me" not in lines:
        lines.append("Tidegate-Sticky: me")  # otherwise the version is random
    posted = predict or path.endswith(("/infer", "/generate", "/generate_stream"))
    method = one_of(["POST" if posted else "GET"], ["GET", "POST", "HEAD", "PUT", "OPTIONS", "CONNECT"], "method")
    line = f"{method} {path}{one_of(queries, [*queries, '?', '#x'], 'path')}"
    line += f" HTTP/{one_of(['1.1'] * 5 + ['1.0'], ['1.1', '1.0', '1.2'], 'method')}"
    hosts = draw(st.sampled_from([[], ["Host: a", "host: b"]] if odd == "headers" else [["Host: proxy"]]))
    body = draw(predicts() if predict else bodies)
    sent = b""
    if method not in ("GET", "HEAD") or draw(st.sampled_from([False, False, True])):
        if draw(st.sampled_from([False, False, True])):
            size = draw(st.integers(1, 200))
            parts = [body[start : start + size] for start in range(0, len(body), size)]
            tail = draw(st.sampled_from([b"", b";x=y"]))
            sent = b"".join(b"%x%b\r\n%b\r\n" % (len(part), tail, part) for part in parts) + b"0\r\n\r\n"
            lines.append("Transfer-Encoding: chunked")
        else:
            sent = body
            lines.append(f"content-length: {len(body)}")
    head = [line, *hosts, *draw(st.permutations(lines))]
    return [each.encode("latin-1") for each in head], one_of(GOOD, BAD, "credential"), sent


CHUNKED = head(b"Content-Type: text/event-stream", b"Transfer-Encoding: chunked")
BINARY = head(b"Inference-Header-Content-Length: 1", b"content-length: 3", b"X-Twice: 1", b"X-Twice: 2")
OK = head(b"Content-Length: 2") + b"ok"
LONG = head(b"content-length: 40000") + b"long" * 10_000
scripts = st.sampled_from(
    [
        *([raw(OK)] * 3),
        raw(OK[:-2], b"ok"),
        raw(OK[:9], OK[9:-1], b"k"),
        raw(LONG),
        raw(head(b"Content-Length: 0")),
        raw(BINARY + b"abc"),
        raw(CHUNKED + b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        raw(CHUNKED, b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n"),
        raw(head(status=b"204 No Content")),
        raw(head(b"Content-Length: 9", status=b"304 Not Modified")),
        raw(head(status=b"100 Continue") + OK),
        raw(head(status=b"103 Early Hints"), OK),
        raw(head(b"Content-Length: 11", status=b"400 Bad Request") + b'{"error":1}'),
        raw(head(b"Content-Length: 2", status=b"599 Odd") + b"no"),
        raw(head(b"Connection: close", b"Content-Length: 2") + b"ok"),
        raw(head(b"Content-Length: 100") + b"short", end="cut"),
        raw(CHUNKED + b"3\r\none\r\n", end="cut"),
        raw(b"nonsense\r\n\r\n"),
        raw(end="cut"),
    ]
)


# --- ways of sending
@dataclass
class Outcome:
    answer: tuple[int, list[str], bytes] | None
    kept: bool
    requests: list[tuple[str, dict[str, str], bytes]]
    counted: dict[str, Any]

    @property
    def but_when_it_was_refused(self) -> object:
        """Return everything that does not depend on how much of a body had arrived when the proxy refused it."""
        if self.answer is None or b"requestId" not in self.answer[2]:
            return self
        status, headers, body = self.answer
        headers = [each for each in headers if each != "connection: close"]
        counted = {name: each for name, each in self.counted.items() if name[-3:] != " in"}
        return status, headers, body, self.requests, counted


def forget(here: RunningProxy) -> None:
    identities = here.proxy.config.authorizer.identities
    for tail in list(identities.by_tail):
        identities.forget(tail)
    here.proxy.config.authorizer.refusals.clear()
    for replica in here.pool.replicas:
        while (idle := replica.take(monotonic())) is not None:
            idle.close()
    for route in here.proxy.config.routes.of_server(None):
        # The proxy checks only occasionally whether the model has sequences.
        route.sequences.known = route.sequences.is_old = False


def counts(here: RunningProxy) -> dict[str, Any]:
    meter = here.proxy.meter
    found: dict[str, Any] = {f"problem {word}": number for word, number in meter.problems.items()}
    found |= {f"upstream {key}": number for key, number in meter.upstream_errors.items()}
    for key, count in meter.calls.items():
        found |= {f"{key} {status}": number for status, number in count.statuses.items()}
        found |= {f"{key} in": count.bytes_in, f"{key} out": count.bytes_out, f"{key} all": sum(count.buckets)}
    return found


async def send(here: RunningProxy, data: bytes, size: int, first: Sequence[bytes] = ()) -> Outcome:
    """Send a request in pieces of `size` bytes after those that come `first`, and another one if possible."""
    for each in here.pool.replicas:
        each.breaker = Breaker()
    async with here.caller() as caller, asyncio.timeout(20):
        for each in first:
            await caller.send(each)
            assert (await caller.reply()).status == 200
        before, seen = counts(here), len(here.replica.requests)
        try:
            for start in range(0, len(data), size):
                caller.writer.write(data[start : start + size])
                await asyncio.sleep(0)
        except (ConnectionError, RuntimeError):
            pass  # refused before it was complete (uvloop raises RuntimeError)
        answer, kept = await _answer(caller, data.startswith(b"HEAD ")), False
        if answer and "connection: close" not in answer[1]:
            caller.writer.write(CANARY)
            kept = (await caller.reader.read()).endswith(b'{"status":"ok"}')
    places = here.proxy.shared.limiter
    assert (places.in_flight, places.waiting, len(here.proxy.shared.open_calls)) == (0, 0, 0)
    assert not [each for each in here.pool.replicas if each.in_flight]
    after = counts(here)
    counted = {name: number - before.get(name, 0) for name, number in after.items() if number != before.get(name, 0)}
    return Outcome(answer, kept, [_plain(each) for each in here.replica.requests[seen:]], counted)


async def _answer(caller: Caller, is_head: bool) -> tuple[int, list[str], bytes] | None:
    """Return status, headers and body of a response without its IDs, or None without a response."""
    status = 0
    try:
        while status < 200:
            status, headers = await caller.head()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    fields = headers_of(headers)
    caller.body = b""
    try:
        if not is_head:
            await caller.read_body(status, fields)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        caller.body += b" CUT " + getattr(error, "partial", b"")
    body = caller.body
    request_id = fields["x-request-id"]
    if request_id == "mine-1":
        return status, headers, body
    own = ["x-request-id:"]
    if is_head or b"requestId" in body:
        own.append("content-length:")  # the IDs in problems differ in length, which HEAD's response shows too
    kept = [each for each in headers if not each.lower().startswith(tuple(own))]
    return status, kept, body.replace(request_id.encode(), b"ID")


def _plain(received: Received) -> tuple[str, dict[str, str], bytes]:
    headers = {name: value for name, value in received.headers.items() if name != "x-request-id" or value == "mine-1"}
    return received.line, headers, received.body


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    report_multiple_bugs=False,
)
@given(made=requests(), script=scripts, size=st.sampled_from([1, 7, 40, 400]))
async def test_however_a_request_comes_its_answer_is_the_same(
    here: RunningProxy, credentials: dict[str, str], made: tuple[list[bytes], str, bytes], script: Act, size: int
) -> None:
    lines, credential, body = made
    here.replica.act = script
    headers = [credentials[credential].encode()] if credentials[credential] else []
    whole = b"\r\n".join([*lines, *headers, b"", b""]) + body
    forget(here)
    cold = await send(here, whole, len(whole))
    warm = await send(here, whole, len(whole))
    event(str(warm.answer[0] if warm.answer else "no answer"))
    assert warm == cold, "warm and cold"
    in_pieces = await send(here, whole, size if len(whole) < 2000 else 1000 * size)
    assert in_pieces.but_when_it_was_refused == cold.but_when_it_was_refused, "in pieces"


LINES = [b"Host: proxy", b"Accept: */*", b"X-Trace: 1 2", b"X-Request-Id: mine-1", b"Connection: keep-alive"]
START = b"POST /v2/models/resnet/infer HTTP/1.1"
STARTS = [
    START.replace(*change)
    for change in (
        (b"infer", b"generate"), (b"resnet", b"seen"), (b"POST", b"GET"), (b"POST", b"HEAD"), (b"POST", b"post"),
        (b"POST ", b"POST  "), (b"1.1", b"1.0"), (b"1.1", b"1.11"), (b"1.1", b"1.1 "), (b"resnet", b"r\xe9snet"),
        (b"/v2", b"http://proxy/v2"), (b"POST", b"\r\nPOST"), (b"infer", b"infer?a=b"), (b" HTTP", b"\tHTTP"),
    )
]  # fmt: skip
VALUES = st.sampled_from(
    [
        b"", b" ", b"x", b" x", b"x ", b"\tx", b"a\tb", b"\x80", b"a\rb", b"a\nb", b"a\r\n b", b"a\x00b", b"a\x7fb",
        b"close", b"Keep-Alive", b"X-Trace", b"x" * 3000, b"Bearer", b"mine-1", b"not mine", b"\r\nX-More: 1",
    ]
)  # fmt: skip


@st.composite
def alike(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return a plain request, and one with the same headers except one of its lines."""
    body = draw(st.sampled_from([b"", b"{}", b'{"inputs":[]}']))
    lines = [b"X-API-Key: %b" % KEY.encode(), b"Content-Length: %d" % len(body)]
    lines = draw(st.permutations([LINES[0], *lines, *draw(st.lists(st.sampled_from(LINES[1:]), unique=True))]))
    other, at = [START, *lines], draw(st.integers(0, len(lines)))
    if at == 0:
        other[0] = draw(st.sampled_from(STARTS))
    else:
        name, _, value = other[at].partition(b": ")
        if name == b"Content-Length":
            value = draw(
                st.sampled_from([b"0" + value, value + b" ", b"+" + value, b"0x" + value, value + b",1", b"-0", b""])
            )
        elif draw(st.booleans()):
            value = draw(VALUES)
        other[at] = (
            draw(st.sampled_from([name, name.upper(), name + b" "]))
            + draw(st.sampled_from([b":", b": ", b":  "]))
            + value
        )
    plain, changed = (b"\r\n".join([*each, b"", b""]) + body for each in ([START, *lines], other))
    return plain, changed + draw(st.sampled_from([b"", b"", CANARY.replace(b"Connection: close\r\n", b"")]))


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    report_multiple_bugs=False,
)
@given(requests=alike())
async def test_a_request_like_the_ones_before_it_is_read_as_if_it_were_the_first(
    here: RunningProxy, requests: tuple[bytes, bytes]
) -> None:
    """A connection reads frequent heads by a pattern instead of the parser: it must be no more lenient."""
    plain, other = requests
    here.replica.act = raw(OK)
    alone = await send(here, other, len(other))
    event(str(alone.answer[0] if alone.answer else "no answer"))
    assert await send(here, other, len(other), first=[plain] * 5) == alone


async def test_a_frequent_head_is_read_without_the_parser(here: RunningProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    here.replica.act = raw(OK)
    request = b"\r\n".join([START, *LINES, b"X-API-Key: %b" % KEY.encode(), b"Content-Length: 2", b"", b"{}"])
    async with here.caller() as caller:
        for number in range(8):
            await caller.send(request)
            assert (await caller.reply()).status == 200
            if number == 5:
                monkeypatch.delattr("tidegate_proxy.http.connection.ClientConnection._take")
