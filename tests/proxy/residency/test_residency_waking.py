import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from ..http.running_proxy import request, running_proxy, until
from ..http.test_http_metrics import scrape, value
from .estate import Estate, at, table
from .standin import Site, sites

pytestmark = pytest.mark.anyio
POOL = {"server": "vision", "pool": "main"}


@asynccontextmanager
async def asleep(root: Path, here: list[Site], wake_seconds: int | None) -> AsyncIterator[Estate]:
    """Run a proxy in front of a pool that has no replica yet, and can have none while there are no calls."""
    async with running_proxy(root, table=table(here, wake_seconds=wake_seconds), kind=Estate) as made:
        assert isinstance(made, Estate)
        yield made


async def test_the_first_callers_wait_for_a_replica_and_are_seen_to_wait(tmp_path: Path) -> None:
    async with sites(1) as here, asleep(tmp_path, here, 20) as front:
        assert value(await scrape(front), "lease_wait_seconds_count", **POOL) == 0, (
            "the metric exists before the first call"
        )
        calls = asyncio.gather(*(front.call(model) for model in ("a", "b")))
        await until(lambda: front.leases.waiting == 2)
        assert value(await scrape(front), "lease_waiting", **POOL) == 2
        front.leads_to((socket.AF_INET, (here[0].host, here[0].triton.port)))
        assert {at(reply) for reply in await calls} == {here[0].host}
        assert value(await scrape(front), "lease_wait_seconds_count", **POOL) == 2


async def test_a_caller_that_has_waited_long_enough_gets_busy_with_a_retry_time(tmp_path: Path) -> None:
    async with sites(1) as here, asleep(tmp_path, here, 1) as front:
        begun = monotonic()
        reply = await front.call("a")
        assert (reply.status, reply.problem, reply.json()["reason"]) == (503, "busy", "no-replica")
        assert int(reply.headers["retry-after"]) >= 1
        assert monotonic() - begun >= 1


async def test_no_call_waits_for_a_replica_in_a_pool_that_should_have_one(tmp_path: Path) -> None:
    async with sites(1) as here, asleep(tmp_path, here, None) as front:
        reply = await front.call("a", seconds=1)
        assert (reply.status, reply.json()["reason"]) == (503, "no-replica")


@pytest.mark.parametrize(("wake_seconds", "ready"), [(20, True), (None, False)])
async def test_a_pool_that_sleeps_is_ready_and_its_models_are_cold(
    tmp_path: Path, wake_seconds: int | None, ready: bool
) -> None:
    async with sites(1) as here, asleep(tmp_path, here, wake_seconds) as front:
        await front.look_up()
        assert (await front.look("a/ready")).status == (200 if ready else 503)
        assert value(await scrape(front), "pool_ready", **POOL) == ready
        found = (await front.ask(request("/models", method="GET"))).json()
        (model,) = (each for each in found["models"] if each["model"] == "a")
        assert model["state"] == ("cold" if ready else "unreachable")
