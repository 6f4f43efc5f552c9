"""Another kind of server behind the proxy: an entry in `KINDS` is all it takes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from tidegate_contracts import routing
from tidegate_proxy.kinds import KINDS

from tests.proxy.http import running_proxy as rig
from tests.proxy.http.running_proxy import KEY, RunningProxy, request, running_proxy
from tests.proxy.http.upstream import Asked, Upstream, answer, upstream

from .toy.proxy import NAME, ToyKind

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that the proxy runs on."""
    return "asyncio", {"use_uvloop": True}


async def toy_server(_: Upstream, writer: asyncio.StreamWriter, asked: Asked) -> None:
    path = asked.line.split()[1]
    said = {"/about/bear": "champion=7", "/v2/models/stats": '{"model_stats": [{"name": "resnet"}]}'}
    await answer(writer, said.get(path, f"{path} {asked.body.decode()}").encode())


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningProxy]:
    """A proxy with a toy server, whose model has an alias, beside a Triton."""
    monkeypatch.setitem(KINDS, NAME, ToyKind())
    pools = [
        routing.Pool(name="main", host="pool.test", http_port=8000, grpc_port=8001, loading="preload") for _ in range(2)
    ]
    servers = (
        routing.Server(name="toys", kind=NAME, pools=(pools[0],)),
        routing.Server(name="vision", kind="triton", pools=(pools[1],)),
    )
    models = (
        routing.Model(name="bear", server="toys", pool="main", alias="champion"),
        routing.Model(name="resnet", server="vision", pool="main"),
    )
    table = routing.RoutingTable(environment="test", servers=servers, models=models)
    monkeypatch.setattr(rig, "routing_table", lambda _: table)
    async with upstream(toy_server) as replica, running_proxy(tmp_path, replica) as made:
        yield made


async def test_a_call_is_understood_sent_and_answered_as_the_kind_has_it(here: RunningProxy) -> None:
    reply = await here.ask(request("/toy", b"bear\nhug"))
    assert (reply.status, reply.body) == (200, b"/run/bear@7 hug")
    assert reply.headers["tidegate-model-version"] == "7"


async def test_a_body_that_asks_nothing_is_told_as_the_kind_says(here: RunningProxy) -> None:
    reply = await here.ask(request("/toy", b"bear"))
    assert (reply.problem, reply.json()["detail"]) == ("malformed", "The first line names the model.")


async def test_a_server_is_called_in_the_protocol_of_its_kind_alone(here: RunningProxy) -> None:
    wrong = [await here.ask(request("/toy", b"resnet\n{}")), await here.ask(request("/v2/models/bear/infer"))]
    wrong += [await here.ask(request(f"/servers/toys/v2{path}", method="GET")) for path in ("", "/models/stats")]
    assert [reply.problem for reply in wrong] == ["unknown"] * 4
    statistics = await here.ask(request("/v2/models/stats", method="GET"))
    assert ([each["name"] for each in statistics.json()["model_stats"]]) == ["resnet"]
    assert "tidegate-unavailable" not in statistics.headers
    assert (await here.ask(request())).status == 200, "the other kind is served as ever"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{here.proxy.ports['grpc']}") as channel:
        is_ready: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelReady")
        with pytest.raises(grpc.aio.AioRpcError, match="The server toys does not speak this protocol"):
            await is_ready(b"\x0a\x04bear", metadata=(("x-api-key", KEY),))
