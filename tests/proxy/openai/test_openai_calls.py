import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidegate_proxy.openai.kind import OpenAIKind

from ..http.running_proxy import KEY, Reply, RunningProxy, request, served, until
from ..http.upstream import head, raw
from ..rigs.tables import CALLER
from .tables import SERVER, access, model, openai_server, table

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
MODELS = (model("plain"), model("shared", {1: 20, 2: 80}), model("hidden"))
ACCESS = access((CALLER, ["plain", "shared", "seen"], ["infer", "inspect"]))


def body(name: str, **more: Any) -> bytes:
    fields = {"messages": [{"role": "user", "content": 'what of "model": "plain"?'}], "model": name, "tools": []} | more
    return json.dumps(fields, indent=1).encode()


def chat(name: str = "plain", path: str = CHAT, **more: Any) -> bytes:
    return request(path, body(name), Content_Type="application/json", **more)


def error(reply: Reply) -> tuple[int, str, str]:
    """A problem in OpenAI's form: status, type, code."""
    found = reply.json()
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    assert found.keys() == {"error"}
    assert found["error"].keys() == {"message", "type", "param", "code"}
    assert found["error"]["message"]
    return reply.status, found["error"]["type"], found["error"]["code"]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[RunningProxy]:
    async with served(tmp_path, table=table(MODELS), access=ACCESS) as made:
        yield made


async def test_the_loop_turns_while_a_long_body_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, meanwhile = 0, 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def open_body(*arguments: Any, read: Any = OpenAIKind.open_body) -> Any:
        nonlocal meanwhile
        before = turns
        found = read(*arguments)
        meanwhile = turns - before
        return found

    monkeypatch.setattr(OpenAIKind, "open_body", open_body)
    async with served(tmp_path, table=table(MODELS), body_limit_bytes=32 << 20, memory_bytes=512 << 20) as here:
        counting = asyncio.ensure_future(count())
        assert (await here.ask(request(CHAT, body("plain", x="y" * 30_000_000)))).status == 200
        counting.cancel()
    assert meanwhile


async def test_the_body_is_sent_on_without_the_credential(here: RunningProxy) -> None:
    for path in (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", f"/servers/{SERVER}{CHAT}"):
        reply = await here.ask(chat(path=path, Authorization=f"Bearer {KEY}", key=None))
        assert (reply.status, reply.json()) == (200, {"ok": 1})
        received = here.replica.requests[-1]
        assert received.line == f"POST {path.removeprefix(f'/servers/{SERVER}')} HTTP/1.1"
        assert json.loads(received.body) == json.loads(body("plain"))
        assert KEY not in str(received.headers)


async def test_a_body_in_chunks_and_in_many_parts_is_one_body(here: RunningProxy) -> None:
    whole = body("shared", x="y" * 300_000)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (whole[:7], whole[7:]))
    sent = [
        request(CHAT, chunks + b"0\r\n\r\n", Transfer_Encoding="chunked"),
        request(CHAT, whole),
    ]
    for each in sent:
        reply = await here.ask(each)
        assert reply.status == 200
        version = reply.headers["tidegate-model-version"]
        got = here.replica.requests[-1]
        assert got.headers["content-length"] == str(len(got.body))
        assert json.loads(got.body) == json.loads(whole) | {"model": f"shared-v{version}"}
    await until(lambda: here.proxy.shared.memory.callers.held < 100_000)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (chat(key=None), (401, "invalid_request_error", "invalid_api_key")),
        (chat(key="sk-wrong"), (401, "invalid_request_error", "invalid_api_key")),
        (chat("hidden"), (404, "invalid_request_error", "model_not_found")),
        (chat("nowhere"), (404, "invalid_request_error", "model_not_found")),
        (chat(path=f"/servers/nowhere{CHAT}"), (404, "invalid_request_error", "model_not_found")),
        (request(CHAT, method="GET"), (405, "invalid_request_error", "method-not-allowed")),
        (request(CHAT, b"{}"), (400, "invalid_request_error", "malformed")),
        (
            request(CHAT, gzip.compress(body("plain")), Content_Encoding="gzip"),
            (400, "invalid_request_error", "malformed"),
        ),
        (request(CHAT, b"x" * 1_000_001), (413, "invalid_request_error", "too-large")),
        (request("/v1/audio/speech", b"{}"), (404, "invalid_request_error", "unknown_url")),
        (request("/v1/models/hidden", method="GET"), (404, "invalid_request_error", "model_not_found")),
        (request("/v1/models/a%20b", method="GET"), (404, "invalid_request_error", "unknown_url")),
        (request("/v1/models", method="GET", key=None), (401, "invalid_request_error", "invalid_api_key")),
        (request("/servers/nowhere/v1/models", method="GET"), (404, "invalid_request_error", "model_not_found")),
    ],
)
async def test_problems_have_the_form_of_the_apis_errors(
    here: RunningProxy, sent: bytes, expected: tuple[int, str, str]
) -> None:
    assert error(await here.ask(sent)) == expected
    assert not here.replica.requests


async def test_problems_at_other_addresses_keep_their_form(here: RunningProxy) -> None:
    for path in ("/v1", "/v2/models/plain/infer", "/nothing"):
        reply = await here.ask(request(path, method="GET" if path != "/v1" else "POST"))
        assert "error" in reply.json(), path
    assert (await here.ask(request("/v2/models/plain/infer"))).problem == "unknown", "it speaks another protocol"


async def test_a_client_with_a_base_url_without_the_api_root_gets_a_hint(here: RunningProxy) -> None:
    for path in ("/chat/completions", "/embeddings"):
        reply = await here.ask(request(path, body("plain")))
        assert error(reply) == (404, "invalid_request_error", "unknown_url")
        assert "below /v1: does your client's base_url end with" in reply.json()["error"]["message"]
    assert "base_url" not in (await here.ask(request("/nothing"))).json()["detail"]


async def test_a_request_without_a_credential_is_refused_before_its_body_is_read(here: RunningProxy) -> None:
    async with here.caller() as caller, asyncio.timeout(5):
        await caller.send(request(CHAT, b"x" * 900_000, key=None)[:2000])
        status, _ = await caller.head()
    assert status == 401


async def test_requests_are_limited_by_the_model_in_the_body_with_a_retry_time(tmp_path: Path) -> None:
    allowed = access((CALLER, ["*"], ["infer"]), burst=2)
    async with served(tmp_path, table=table(MODELS), access=allowed) as here:
        assert [(await here.ask(chat())).status for _ in range(2)] == [200, 200]
        reply = await here.ask(chat())
        assert error(reply) == (429, "requests", "rate_limit_exceeded")
        assert 1 <= int(reply.headers["retry-after"]) <= 31
        assert (await here.ask(chat("shared"))).status == 200, "another model has its own"
        await here.replica.close()
        reply = await here.ask(chat("hidden"))
        assert error(reply) == (503, "server_error", "busy")
        assert int(reply.headers["retry-after"]) >= 1


async def test_a_model_on_several_servers_is_called_by_naming_one(tmp_path: Path) -> None:
    models = [model("both"), model("both", server="other"), model("one", server="other")]
    other = openai_server("other")
    triton = openai_server("vision").model_copy(update={"kind": "triton"})
    models.append(model("image", server="vision"))
    async with served(tmp_path, table=table(models, openai_server(), other, triton)) as here:
        reply = await here.ask(chat("both"))
        assert error(reply) == (400, "invalid_request_error", "malformed")
        assert "name one of llm, other" in reply.json()["error"]["message"]
        for path in (f"/servers/other{CHAT}", f"/servers/llm{CHAT}"):
            assert (await here.ask(chat("both", path=path))).status == 200
        assert (await here.ask(chat("one"))).status == 200
        not_its_protocol = (404, "invalid_request_error", "model_not_found")
        assert error(await here.ask(chat("image"))) == not_its_protocol
        listed = (await here.ask(request("/v1/models", method="GET"))).json()["data"]
        assert [(each["id"], each["owned_by"]) for each in listed] == [
            ("both", "llm"), ("both", "other"), ("one", "other"),
        ]  # fmt: skip
        listed = (await here.ask(request("/servers/llm/v1/models", method="GET"))).json()["data"]
        assert [each["id"] for each in listed] == ["both"]
        for path in ("/v1/models/both", "/v1/models/image", "/servers/vision/v1/models"):
            assert (await here.ask(request(path, method="GET"))).status in (400, 404)


async def test_a_name_at_servers_of_two_protocols_is_a_model_of_each_in_its_own(tmp_path: Path) -> None:
    triton = openai_server("vision").model_copy(update={"kind": "triton"})
    models = [model("plain", served_names=("image",)), model("image", server="vision")]
    async with served(tmp_path, table=table(models, openai_server(), triton)) as here:
        for path in (CHAT, "/v2/models/image/infer"):
            assert (await here.ask(chat("image", path=path))).status == 200
            assert here.replica.requests[-1].line == f"POST {path} HTTP/1.1"
        found = (await here.ask(request("/v1/models/image", method="GET"))).json()
        assert (found["id"], found["owned_by"]) == ("image", SERVER)


async def test_the_list_has_the_models_that_the_caller_may_inspect_and_queries_no_server(here: RunningProxy) -> None:
    reply = await here.ask(request("/v1/models", method="GET"))
    assert reply.json() == {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": SERVER} for name in ("plain", "shared")],
    }
    for path in ("/v1/models/plain", f"/servers/{SERVER}/v1/models/plain"):
        assert (await here.ask(request(path, method="GET"))).json() == reply.json()["data"][0]
    assert not here.replica.requests


async def test_every_documented_address_answers_and_takes_no_other_method(here: RunningProxy) -> None:
    document = yaml.safe_load((await here.ask(request("/openapi.yaml", method="GET"))).body)
    paths = {path: item for path, item in document["paths"].items() if "/v1/" in path}
    assert len(paths) == 12
    for path, item in paths.items():
        method, address = ("POST" if "post" in item else "GET"), path.format(server=SERVER, model="plain")
        assert (await here.ask(request(address, body("plain"), method))).status == 200, path
        refused = await here.ask(request(address, method="PUT"))
        assert error(refused) == (405, "invalid_request_error", "method-not-allowed")
        assert refused.headers["allow"] == method


async def test_a_response_has_one_request_id_even_if_the_server_repeats_it(tmp_path: Path) -> None:
    act = raw(head(b"X-Request-Id: mine", b"x-request-id: mine", b"content-length: 2"), b"{}")
    async with served(tmp_path, act, table=table(MODELS)) as here, here.caller() as caller:
        await caller.send(chat(x_request_id="mine"))
        _, lines = await caller.head()
        assert [line for line in lines if line.lower().startswith("x-request-id")] == ["x-request-id: mine"]


async def test_an_alias_is_refused_because_such_servers_have_none(tmp_path: Path) -> None:
    async with served(tmp_path, table=table([model("plain", alias="champion")])) as here:
        reply = await here.ask(chat())
        assert error(reply) == (503, "server_error", "busy")
        assert "have no aliases" in reply.json()["error"]["message"]


async def test_liveness_is_checked_at_the_path_of_the_pool(tmp_path: Path) -> None:
    there = openai_server()
    pool = there.pools[0].model_copy(update={"live_path": "/v1/health/live"})
    tables = table(MODELS, there.model_copy(update={"pools": (pool,)}))
    async with served(tmp_path, table=tables, access=ACCESS) as made:
        await until(lambda: any(each.line.startswith("GET ") for each in made.replica.requests))
        assert {each.line for each in made.replica.requests} == {"GET /v1/health/live HTTP/1.1"}
