"""What the OpenAPI document says can be asked is answered, whatever comes: by an answer or by a problem, never 500."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .house import KEY, MODEL, House, Reply, house
from .upstream import upstream

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
KNOWN = {"model": MODEL, "server": "vision", "version": "1"}
texts = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters=" \r\n"), min_size=1, max_size=20)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
envelopes = st.fixed_dictionaries(
    {},
    optional={
        "inference_server_name": st.just("vision") | anything,
        "model_name": st.just(MODEL) | anything,
        "model_version": st.just("1") | anything,
        "payload": anything,
    },
)
bodies = envelopes.map(json.dumps).map(str.encode) | anything.map(json.dumps).map(str.encode) | st.binary(max_size=50)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, House, dict[str, Any]]]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()

        async def build(root: Path) -> tuple[House, dict[str, Any]]:
            made = await stack.enter_async_context(house(root, await stack.enter_async_context(upstream())))
            document = (await ask(made, "GET", "/openapi.json", b"")).json()
            return made, document

        made, document = runner.run(build(tmp_path_factory.mktemp("documented")))
        try:
            yield runner, made, document
        finally:
            runner.run(stack.aclose())


async def ask(here: House, method: str, path: str, body: bytes, *headers: str) -> Reply:
    lines = [f"{method} {path} HTTP/1.1", "Host: proxy", f"Content-Length: {len(body)}", *headers, "", ""]
    async with here.caller() as caller, asyncio.timeout(20):
        await caller.send("\r\n".join(lines).encode("latin-1") + body)
        return await caller.reply()


def documented(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(method.upper(), path) for path, said in document["paths"].items() for method in METHODS if method in said]


def test_every_documented_path_answers_who_asks_rightly(
    here: tuple[asyncio.Runner, House, dict[str, Any]],
) -> None:
    runner, made, document = here
    asked = documented(document)
    assert len(asked) > 30
    envelope = {"inference_server_name": "vision", "model_name": MODEL, "payload": {"inputs": []}}
    for method, path in asked:
        body = json.dumps(envelope).encode() if path == "/predict" else b"{}" if method == "POST" else b""
        reply = runner.run(ask(made, method, path.format(**KNOWN), body, f"X-API-Key: {KEY}"))
        # The replica here answers everything with {"ok":1}, which is no statistics.
        assert reply.status == 200 or path.endswith("/v2/models/stats"), (method, path, reply)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_asked_of_a_documented_path_is_answered(
    here: tuple[asyncio.Runner, House, dict[str, Any]], data: st.DataObject
) -> None:
    runner, made, document = here
    method, path = data.draw(st.sampled_from(documented(document)))
    names = {name: data.draw(st.just(known) | texts) for name, known in KNOWN.items() if f"{{{name}}}" in path}
    method = data.draw(st.sampled_from([method] * 4 + [each.upper() for each in METHODS if each != "head"]))
    headers = data.draw(
        st.lists(
            st.sampled_from(["Content-Type: application/json", "Accept: text/html", "Connection: close"])
            | texts.map(lambda text: f"Authorization: {text}")
            | texts.map(lambda text: f"X-Request-Id: {text}"),
            max_size=3,
        )
    )
    key = data.draw(st.sampled_from([[f"X-API-Key: {KEY}"]] * 3 + [[]]))
    said = path.format(**names) + data.draw(st.sampled_from(["", "", "?x=%ff", "?"]))
    reply = runner.run(ask(made, method, said, data.draw(bodies), *key, *headers))
    assert reply.status < 500 or (reply.status, "stats" in said) == (502, True), (method, said, reply)
    if reply.status >= 400:
        assert reply.problem, (method, said, reply)
        assert reply.json()["status"] == reply.status
        assert reply.json()["requestId"] == reply.headers["x-request-id"]
    assert KEY.encode() not in reply.body
