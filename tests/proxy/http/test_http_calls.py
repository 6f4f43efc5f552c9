import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts.environments import WhoAmI

from ..rigs.issuer import Issuer
from ..rigs.tables import access_table
from .running_proxy import (
    BODY,
    ENVELOPE,
    KEY,
    MODEL,
    PATH,
    Reply,
    RunningProxy,
    model,
    request,
    served,
)
from .upstream import answering

pytestmark = pytest.mark.anyio
NO_VERSIONS = [
    b"-1",
    b"2.5",
    b"1e300",
    *(b'"%b"' % number for number in (b"0", b"-1", b"1 ", "١".encode(), b"1" * 17, b"9" * 500_000)),
]
VERSIONED = b'{"inference_server_name":"vision","model_name":"resnet","model_version":%b,"payload":%b}'


async def test_a_call_reaches_the_replica_and_its_answer_the_caller(here: RunningProxy) -> None:
    reply = await here.ask(request(Content_Type="application/json", Traceparent="00-ab-cd-01"))
    assert (reply.status, reply.body) == (200, b'{"ok":1}')
    [received] = here.replica.requests
    assert received.line == f"POST {PATH} HTTP/1.1"
    assert received.body == BODY
    assert received.headers["content-type"] == "application/json"
    assert received.headers["traceparent"] == "00-ab-cd-01"
    assert received.headers["x-request-id"] == reply.headers["x-request-id"]


async def test_credentials_and_the_control_header_are_not_forwarded(here: RunningProxy) -> None:
    secrets = {"X_API_Key": KEY, "Cookie": "a=b", "Tidegate_Control": "guess", "Proxy_Authorization": "Basic eA=="}
    assert (await here.ask(request(PATH, BODY, "POST", None, **secrets))).status == 200
    assert (await here.ask(request(key=None, Authorization=f"Bearer {KEY}"))).status == 200
    for received in here.replica.requests:
        assert received.headers.keys() == {"host", "content-length", "x-request-id"}


async def test_a_valid_request_id_of_the_caller_is_kept(here: RunningProxy) -> None:
    assert (await here.ask(request(X_Request_Id="mine-1"))).headers["x-request-id"] == "mine-1"
    for bad in ("a b", "x" * 129, "ü", "<script>"):
        assert (await here.ask(request(X_Request_Id=bad))).headers["x-request-id"] != bad


async def test_predict_opens_its_envelope_and_sends_the_payload_as_it_is(here: RunningProxy) -> None:
    payload = b'{ "inputs" : [ 1.0, "\\u00fc" ] }'
    for version, path in (
        (b'"7"', "/versions/7/infer"),
        (b"7", "/versions/7/infer"),
        (b"2.0", "/versions/2/infer"),
        (b"null", "/infer"),
        (b'""', "/infer"),
    ):
        reply = await here.ask(request("/predict", VERSIONED % (version, payload)))
        assert (reply.status, reply.body) == (200, b'{"ok":1}')
        received = here.replica.requests[-1]
        assert (received.line, received.body) == (f"POST /v2/models/resnet{path} HTTP/1.1", payload)


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"", 400, "malformed"),
        (b"{", 400, "malformed"),
        (b'{"model_name":"resnet","payload":{}}', 400, "malformed"),
        *((VERSIONED % (number, b"{}"), 400, "malformed") for number in NO_VERSIONS),
        (ENVELOPE % (b"[" * 200_000 + b"]" * 200_000), 400, "malformed"),
        (b'{"x":' * 100_000, 400, "malformed"),
        (b'{"inference_server_name":"\xff","model_name":"resnet","payload":{}}', 400, "malformed"),
        (b'{"inference_server_name":"vision","model_name":"../resnet","payload":{}}', 404, "unknown"),
        (b'{"inference_server_name":"other","model_name":"resnet","payload":{}}', 404, "unknown"),
    ],
)
async def test_an_invalid_envelope_is_refused(here: RunningProxy, body: bytes, status: int, problem: str) -> None:
    reply = await here.ask(request("/predict", body))
    assert (reply.status, reply.problem) == (status, problem)
    assert (await here.ask(request("/predict", body, key=None))).status == 401, "no details for unauthenticated callers"
    assert not here.replica.begun


async def test_continue_is_sent_only_if_the_call_is_granted(here: RunningProxy) -> None:
    head, body = request(body=b"x" * 10, Expect="100-continue").split(b"\r\n\r\n")
    async with here.caller() as caller:
        await caller.send(head + b"\r\n\r\n")
        assert await caller.head() == (100, [])
        await caller.send(body)
        assert (await caller.reply()).status == 200
    async with here.caller() as caller:
        await caller.send(head.replace(KEY.encode(), b"tgk_nobody") + b"\r\n\r\n")
        assert (await caller.reply()).status == 401
        assert await caller.ended()
    assert len(here.replica.requests) == 1


@pytest.mark.parametrize("path", ["/predict", PATH, "/whoami"])
async def test_http_1_0_gets_no_interim_answer(here: RunningProxy, path: str) -> None:
    """RFC 9110, 15.2: HTTP/1.0 does not define them. The body arrives without `100 Continue`."""
    data = request(path, ENVELOPE % BODY if path == "/predict" else BODY, Expect="100-continue")
    head, body = data.replace(b"HTTP/1.1", b"HTTP/1.0").split(b"\r\n\r\n")
    async with here.caller() as caller:
        await caller.send_apart(head + b"\r\n\r\n")
        await caller.send(body)
        assert (await caller.head())[0] == (405 if path == "/whoami" else 200)


async def test_a_server_names_the_extensions_alone_that_callers_can_use(tmp_path: Path) -> None:
    metadata = {
        "name": "triton",
        "version": "2.51",
        "extensions": ["statistics", "trace", "cuda_shared_memory", "sequence"],
    }
    async with served(tmp_path, answering(json.dumps(metadata).encode())) as here:
        for path in ("/v2", "/servers/vision/v2"):
            found = (await here.ask(request(path, method="GET"))).json()
            assert found == metadata | {"extensions": ["statistics", "sequence"]}


@pytest.mark.parametrize("how", ["it raises", "it leaves", "it answers nothing"])
async def test_a_part_of_the_applications_answer_is_never_sent_as_the_whole(here: RunningProxy, how: str) -> None:
    async def app(_scope: object, _receive: object, send: Any) -> None:
        if how != "it answers nothing":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if how == "it raises":
            raise ValueError

    here.proxy.http.app = app
    reply = await here.ask(request("/whoami", method="GET"))
    assert (reply.status, reply.problem) == (500, "internal")


async def test_shares_of_traffic_are_exact_and_sticky_on_request(tmp_path: Path) -> None:
    async with served(tmp_path, models=[model(MODEL, {1: 20, 2: 80, 3: 0})]) as here, here.caller() as caller:
        chosen: Counter[str] = Counter()
        for _ in range(1000):
            await caller.send(request())
            chosen[(await caller.reply()).headers["tidegate-model-version"]] += 1
        assert chosen.keys() == {"1", "2"}
        assert 130 < chosen["1"] < 270  # 200 ± 5.5 standard deviations
        for user in range(20):
            await caller.send(request(Tidegate_Sticky=f"user-{user}") * 5)
            assert len({(await caller.reply()).headers["tidegate-model-version"] for _ in range(5)}) == 1
        await caller.send(request(f"/v2/models/{MODEL}/versions/9/infer"))
        assert (await caller.reply()).headers["tidegate-model-version"] == "9"


async def test_too_many_requests_get_a_retry_after(tmp_path: Path) -> None:
    async with served(tmp_path, access=access_table((), 60, 3)) as here:
        replies = [await here.ask() for _ in range(5)]
        assert [reply.status for reply in replies] == [200, 200, 200, 429, 429]
        assert replies[-1].headers["retry-after"] == "1"
        assert 0 < replies[-1].json()["retryAfterSeconds"] <= 1
        assert len(here.replica.requests) == 3


# --- whoami
async def who(here: RunningProxy, key: str | None = None, **headers: str) -> Reply:
    return await here.ask(request("/whoami", b"", "GET", key, **headers))


async def test_whoami_shows_name_groups_and_issuer_of_a_token(tmp_path: Path, identity_provider: Issuer) -> None:
    token = identity_provider.token("ada", ["writers", "data-scientists"])  # a principal without any rule
    async with served(tmp_path, access=access_table([identity_provider])) as here:
        reply = await who(here, Authorization=f"Bearer {token}")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json() == {
        "environment": "test",
        "principal": "ada",
        "groups": ["data-scientists", "writers"],
        "source": identity_provider.url,
    }
    assert WhoAmI.model_validate_json(reply.body).principal == "ada"
    assert reply.headers["cache-control"] == "no-store"


async def test_whoami_shows_the_principal_of_an_api_key_in_either_header(here: RunningProxy) -> None:
    replies = [await who(here, KEY), await who(here, Authorization=f"Bearer {KEY}")]
    expected = {"environment": "test", "principal": "ci", "groups": [], "source": "api-keys"}
    assert [reply.json() for reply in replies] == [expected, expected]


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({}, "unauthenticated"),
        ({"Authorization": "Bearer tgk_wrong"}, "unauthenticated"),
        ({"Authorization": f"Bearer {KEY}x"}, "unauthenticated"),
        ({"X_API_Key": KEY, "Authorization": f"Bearer {KEY}"}, "malformed"),
    ],
    ids=["nothing", "a-wrong-key", "a-longer-key", "two"],
)
async def test_other_credentials_are_refused_without_details(
    here: RunningProxy, headers: dict[str, str], problem: str
) -> None:
    for path in ("/whoami", "/v2", f"/v2/models/{MODEL}"):
        reply = await here.ask(request(path, b"", "GET", None, **headers))
        assert reply.problem == problem, path
        assert ("www-authenticate" in reply.headers) == (problem == "unauthenticated")
        assert reply.json()["requestId"] == reply.headers["x-request-id"]
        assert KEY.encode() not in reply.body
