import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from tidegate_contracts import lease
from tidegate_eviction.serving.callers import Callers
from tidegate_eviction.serving.lease_api import BODY_BYTES, make_lease_api

from lab.local_plane.credentials import lease_token, write_cluster

from ..rigs.running_policy import MIB, RunningPolicy, live
from ..rigs.stand_in import StandIn

pytestmark = pytest.mark.anyio

USE = {"inFlight": 0, "idleSeconds": 0}


class Wire:
    def __init__(self, http: aiohttp.ClientSession, root: str) -> None:
        self.http = http
        self.root = root

    async def post(self, path: str, message: Any) -> tuple[int, Any, Any]:
        body = message if isinstance(message, bytes) else json.dumps(message)
        async with self.http.post(self.root + path, data=body) as answer:
            text = await answer.read()
            return answer.status, answer.headers, json.loads(text) if text else None

    async def acquire(self, model: str, **more: Any) -> tuple[int, Any, Any]:
        return await self.post(lease.ACQUIRE_PATH, {"holder": "p.1", "model": model} | more)


@asynccontextmanager
async def over_the_wire(root: Path, stand_in: StandIn, **changes: Any) -> AsyncIterator[tuple[RunningPolicy, Wire]]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with live(root, stand_in, **changes) as policy:
        callers = Callers(write_cluster(root / "cluster"), root / "state")
        callers.keys.start()
        api = make_lease_api(policy.service, callers)
        config = uvicorn.Config(api, log_config=None, lifespan="off", timeout_keep_alive=75)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        try:
            async with aiohttp.ClientSession(headers={"authorization": f"Bearer {lease_token('p')}"}) as http:
                yield policy, Wire(http, f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            server.should_exit = True
            await serving


async def test_a_lease_is_granted_renewed_and_released(tmp_path: Path) -> None:
    async with over_the_wire(tmp_path, StandIn({"a": MIB})) as (policy, wire):
        status, _, reply = await wire.acquire("a")
        assert (status, reply["outcome"], reply["versions"]) == (200, "granted", [1])
        uses = {"a": {"inFlight": 1, "idleSeconds": 0, "requests": 7}}
        renewal = {"holder": "p.1", "incarnation": reply["incarnation"], "models": uses}
        status, _, renewed = await wire.post(lease.RENEW_PATH, renewal)
        assert (status, renewed["lost"], renewed["resident"], renewed["accepts"]) == (200, [], ["a"], True)
        release = {
            "holder": "p.1",
            "incarnation": reply["incarnation"],
            "models": ["a"],
            "serials": {"a": reply["serial"]},
        }
        for late in ({"a": reply["serial"] - 1}, {}):
            status, _, _ = await wire.post(lease.RELEASE_PATH, release | {"serials": late})
            assert (status, policy.service.residency.leases) == (204, 1)
        status, _, _ = await wire.post(lease.RELEASE_PATH, release)
        assert (status, policy.service.residency.leases) == (204, 0)


async def test_each_refusal_has_its_status(tmp_path: Path) -> None:
    stand_in = StandIn({"a": 80 * MIB, "b": 80 * MIB, "huge": 200 * MIB, "broken": 1}, failing={"broken": "no memory"})
    async with over_the_wire(tmp_path, stand_in, lease_seconds=60) as (policy, wire):
        assert (await wire.acquire("a"))[0] == 200
        status, headers, reply = await wire.acquire("b", waitSeconds=0)
        assert (status, reply["outcome"]) == (503, "busy")
        assert int(headers["retry-after"]) >= reply["retryAfter"] > 0
        assert [(await wire.acquire(name))[0] for name in ("absent", "huge")] == [404, 507]
        while (failed := await wire.acquire("broken", waitSeconds=0.5))[0] == 503:
            await asyncio.sleep(0.1)
        assert (failed[0], "no memory" in failed[2]["why"]) == (424, True)
        loads = policy.triton.did("load")
        assert (loads.count("broken"), loads.count("huge")) == (3, 0)


async def test_hanging_up_ends_the_wait_and_the_load_goes_on(tmp_path: Path) -> None:
    async with over_the_wire(tmp_path, StandIn({"a": MIB}, load_seconds=0.5)) as (policy, wire):
        asking = asyncio.create_task(wire.acquire("a"))
        await policy.until(lambda: policy.state("a") == "loading")
        asking.cancel()
        await policy.until(lambda: policy.counted("acquires_total", outcome="gone") == 1)
        assert (await wire.acquire("a"))[0] == 200
        assert policy.triton.did("load").count("a") == 1


@pytest.mark.parametrize(
    ("path", "message", "status", "why"),
    [
        (lease.ACQUIRE_PATH, b"", 400, "Invalid JSON"),
        (lease.ACQUIRE_PATH, b"[" * 100_000, 400, "the message: "),
        (lease.ACQUIRE_PATH, {"holder": "p"}, 400, "model: Field required"),
        (lease.ACQUIRE_PATH, {"holder": "p q", "model": "a"}, 400, "holder: "),
        (lease.ACQUIRE_PATH, {"holder": "p", "model": "a", "waitSeconds": -1}, 400, "waitSeconds: "),
        (lease.RENEW_PATH, {"holder": "p", "models": {"a": USE | {"inFlight": 10**400}}}, 400, "inFlight: "),
        (lease.RELEASE_PATH, {"holder": "p", "models": 5}, 400, "models: "),
        (lease.RELEASE_PATH, {"holder": "p", "models": ["a"]}, 400, "serials: Field required"),
        (lease.RELEASE_PATH, b" " * (BODY_BYTES + 1), 413, "limit is 8388608 bytes"),
    ],
)
async def test_an_invalid_message_is_refused_and_changes_nothing(
    tmp_path: Path, path: str, message: Any, status: int, why: str
) -> None:
    async with over_the_wire(tmp_path, StandIn({"a": 1})) as (policy, wire):
        got, _, answer = await wire.post(path, message)
        assert (got, why in answer["why"]) == (status, True), answer
        assert policy.service.residency.leases == 0


async def test_a_message_that_is_cut_short_is_no_defect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A killed holder sends half a message."""
    async with over_the_wire(tmp_path, StandIn({"a": MIB})) as (_, wire):
        for end in (b"", b"zz\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(wire.root.rpartition(":")[2]))
            head = f"POST {lease.RENEW_PATH} HTTP/1.1\r\nHost: policy\r\nTransfer-Encoding: chunked\r\n"
            head += f"Authorization: Bearer {lease_token('p')}\r\n\r\n"
            writer.write(head.encode() + b'9\r\n{"holder"\r\n')
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(end)
            writer.close()
            await reader.read()
        assert (await wire.acquire("a"))[0] == 200
    reply = [each.getMessage() for each in caplog.records if each.name.startswith("uvicorn")]  # Others notice nothing.
    assert not [each for each in reply if "Exception" in each]


async def test_the_reason_of_a_failed_load_has_no_paths_and_tracebacks(tmp_path: Path) -> None:
    failing = {"broken": "no /models/broken/1/model.py\n\nAt:\n  /models/broken/1/model.py(1): <module>\n"}
    async with over_the_wire(tmp_path, StandIn({"broken": 1}, failing=failing)) as (policy, wire):
        status, _, reply = await wire.acquire("broken", waitSeconds=20)
        assert (status, reply["reason"]) == (503, "load-failed")
        assert reply["why"].endswith(" no model.py")
        assert policy.counted("busy_total", reason="load-failed") == 1
        assert policy.counted("model_load_failures_total", model="broken") == 1
        [listed] = policy.service.listing().models
        assert listed.why == listed.failed_why == "no model.py"
        assert listed.failed_seconds is not None
        assert 0 <= listed.failed_seconds < 10
