import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tidegate_proxy
import yaml
from hypothesis import HealthCheck, assume, event, example, given, settings
from hypothesis import strategies as st
from tidegate_contracts import proxy_process, routing
from tidegate_proxy.targets import without_path

from tests.counts import examples

from ..rigs.tables import CALLER, MANY
from ..test_paths import CONTROL, TRICKS
from .running_proxy import BODY, ENVELOPE, KEY, MODEL, PATH, RIG, RunningProxy, request, served

pytestmark = pytest.mark.anyio
AT = "/inference"
MODELS = (MODEL, "inference", "hidden")
NAMES = {"model": MODEL, "server": "vision", "version": "1"}
DOCUMENT = yaml.safe_load((Path(tidegate_proxy.__file__).parent / "openapi.yaml").read_text("utf-8"))
DOCUMENTED = [
    (method.upper(), path.format(**NAMES))
    for path, operations in DOCUMENT["paths"].items()
    for method in operations.keys() & {"get", "post"}
]
METHODS = ["GET", "POST", "HEAD", "OPTIONS", "PUT"]
PIECES = [
    "/v2", "/models", f"/{MODEL}", "/hidden", "/inference", "/infer", "/predict", "/openapi.yaml", "/servers/vision",
    "/", "/..", "%2f", "%69nference", "?x=/inference", "X", ";a", "#", "*",
    "/versions/1", "/health", "/whoami", "/ready",
]  # fmt: skip
known = st.sampled_from([path for _, path in DOCUMENTED] + ["/openapi.yaml", "/", *CONTROL])
tricks = st.sampled_from([path for path in TRICKS if path.startswith("/") and len(path) < 180])
made = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
odd = st.text("/v2modelsinferc%.;019?#*\\~é", max_size=40)
paths = st.one_of(known, tricks, made.map(lambda text: f"/{text.lstrip('/')}"), odd.map("/{}".format))
refused = [(method, path.replace(MODEL, "hidden")) for method, path in DOCUMENTED]
calls = st.sampled_from(DOCUMENTED + refused) | st.tuples(st.sampled_from(METHODS), paths)


@pytest.fixture
async def below(tmp_path: Path) -> AsyncIterator[RunningProxy]:
    """Run a proxy that is exposed at a path. Its one caller may do everything with two of the models."""
    rule = routing.AccessRule(
        name="two", principals=(CALLER,), actions=("infer", "inspect"), servers=("*",), models=(MODEL, "inference")
    )
    limit = routing.RateLimit(requests_per_minute=MANY, burst=MANY)
    access = routing.AccessTable(rules=(rule,), rate_limit=limit)
    soon = replace(RIG, linger_seconds=0.01)
    async with served(tmp_path, models=MODELS, access=access, path=AT, tunables=soon) as running:
        yield running


async def seen(proxy: RunningProxy, method: str, path: str, key: str | None = KEY) -> tuple[int, Any, Any, list[Any]]:
    """Return status, headers and body of a response without the path in its texts, and the replica's requests."""
    proxy.replica.requests.clear()
    async with proxy.caller() as caller:
        await caller.send(request(path, ENVELOPE % BODY, method, key, X_Request_Id="mine", Connection="close"))
        head, _, body = (await caller.reader.read()).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:] if not line.lower().startswith("content-length:"))
    body = body.replace(AT.encode(), b"").replace(headers.pop("x-request-id").encode(), b"mine")
    return int(lines[0].split()[1]), headers, body, [(each.line, each.body) for each in proxy.replica.requests]


@settings(parent=examples(400), suppress_health_check=list(HealthCheck))
@example(call=("GET", ""), key=KEY)
@example(call=("GET", "?x"), key=KEY)
@example(call=("GET", "//healthz"), key=None)
@given(call=calls, key=st.sampled_from([KEY, KEY, None, "tgk_wrong"]))
async def test_every_address_is_answered_below_the_path_as_it_is_without_it(
    below: RunningProxy, call: tuple[str, str], key: str | None
) -> None:
    method, path = call
    # A URL that contains the path twice loses it once.
    assume(without_path(path.encode(), AT.encode()) == path.encode())
    plain = await seen(below, method, path if path[:1] == "/" else f"/{path}", key)
    event(str(plain[0]))
    assert await seen(below, method, AT + path, key) == plain


async def test_an_unknown_address_leads_to_the_document_below_the_same_path(below: RunningProxy) -> None:
    assert DOCUMENT["servers"] == [{"url": "./"}]  # relative to the document's URL
    for path, root in ((AT, AT), (f"{AT}/v2/models/-/infer", AT), ("/x", "")):
        reply = await below.ask(request(path, method="GET"))
        assert reply.problem == "unknown"
        assert reply.json()["detail"].endswith(f"See http://proxy{root}/openapi.yaml.")
        assert (await below.ask(request(f"{root}/openapi.yaml", method="GET"))).status == 200


@pytest.mark.parametrize(
    "start",
    ["/inferenceX", "/inference.", "/Inference", "/inferenc%65", "/%69nference", "//inference", "/inference%2f",
     "/inference/inference", "/inference/", "/inference/.", "/x/../inference", "/inference;x", "/inference%00"],
)  # fmt: skip
async def test_similar_paths_are_not_found(below: RunningProxy, start: str) -> None:
    for tail in (PATH, "/v2/models/hidden/infer", "/healthz", "/whoami", "/predict"):
        for path in (f"{start}{tail}", f"{AT}{tail[1:]}"):
            reply = await below.ask(
                request(path, ENVELOPE % BODY, "GET" if tail in ("/healthz", "/whoami") else "POST")
            )
            assert (reply.status, reply.problem) == (404, "unknown"), path
    assert not below.replica.requests


async def test_an_address_with_scheme_and_host_is_below_the_path_too(below: RunningProxy) -> None:
    assert (await below.ask(request(f"http://other{AT}{PATH}"))).status == 200
    assert (await below.ask(request(f"HTTP://other{AT}?x", method="GET"))).status == 404


async def test_a_model_that_is_called_like_the_path_is_called_both_ways(below: RunningProxy) -> None:
    url = "/v2/models/inference/infer"
    async with below.caller() as caller:
        for address in ("/v2/models/-/infer", url, f"{AT}{url}", url, f"{AT}{url}"):
            await caller.send(request(address))
            assert (await caller.reply()).status == (404 if "-" in address else 200)
        # Parsed targets are cached by the received URL, so the path is removed once and not at each call.
        assert {url.encode(), f"{AT}{url}".encode()} <= below.proxy.http.targets.keys()
    assert {each.line for each in below.replica.requests} == {f"POST {url} HTTP/1.1"}
    envelope = json.dumps({"inference_server_name": "vision", "model_name": "inference", "payload": {}}).encode()
    assert (await below.ask(request(f"{AT}/predict", envelope))).status == 200


async def test_without_a_path_urls_are_unchanged(here: RunningProxy) -> None:
    assert (await here.ask(request(AT + PATH))).status == 404
    assert (await here.ask(request("/"))).status == 404


def test_the_contract_knows_how_all_addresses_of_the_proxy_begin() -> None:
    own = {path.split("/")[1] for _, path in DOCUMENTED} | {"openapi.yaml"}
    assert own == set(proxy_process.FIRST_STEPS)
