"""Leases on models that answer at ports of their own: what is called there, and nowhere else."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tidegate_contracts import routing

from ..http.running_proxy import RunningProxy, running_proxy, until
from ..http.upstream import Act, Upstream, answering, head, only, raw, upstream
from ..residency.standin import Site, sites
from .tables import SERVER, model, table
from .test_openai_elsewhere import NOT_FOUND, calls, chat, says

pytestmark = pytest.mark.anyio
NOT_HERE = raw(head(b"content-length: 0", status=b"501 Unsupported method"))


@asynccontextmanager
async def leased(root: Path, act: Act | None = None) -> AsyncIterator[tuple[RunningProxy, Site, Upstream]]:
    """A proxy, a replica whose port of the pool knows which models are awake, and the one model's own port."""
    async with sites(lease_seconds=30) as [site], upstream(act, site.host) as engine:
        site.port, site.triton.act = engine.port, only("GET /v1/models/", answering(), NOT_HERE)
        ports = {"http_port": site.triton.port, "lease_port": site.policy.port}
        pool = routing.Pool.model_validate({"name": "main", "host": "pool.test", "loading": "on-demand", **ports})
        server = routing.Server(name=SERVER, kind="openai", pools=(pool,))
        address = socket.AF_INET, (site.host, site.triton.port)
        async with running_proxy(root, address, table=table((model("plain"), model("other")), server)) as here:
            yield here, site, engine


async def test_without_its_policy_a_model_is_called_at_its_own_port_if_that_is_known_and_nowhere_else(
    tmp_path: Path,
) -> None:
    async with leased(tmp_path) as (here, site, engine):
        assert (await here.ask(chat())).status == 200
        await site.policy.close()
        assert here.pool.leases is not None
        [policy] = here.pool.leases.table.replicas.values()
        policy.leases["plain"].until = 0.0
        assert (await here.ask(chat())).status == 200
        assert calls(engine) == 2
        reply = await here.ask(chat("other"))
        assert (reply.status, reply.json()["error"]["code"]) == (503, "busy")
        assert "eviction policy" in reply.json()["error"]["message"]
        assert calls(engine) == 2
        assert not calls(site.triton)


async def test_a_model_that_a_lease_is_on_and_that_is_there_answers_404_itself(tmp_path: Path) -> None:
    async with leased(tmp_path, says(404, NOT_FOUND, "plain")) as (here, site, engine):
        for _ in range(3):
            reply = await here.ask(chat())
            assert (reply.status, reply.body) == (404, NOT_FOUND)
        assert len(site.acquires) == 1, "the lease is in no doubt"
        engine.act = says(404, NOT_FOUND, "other")
        reply = await here.ask(chat())
        assert (reply.status, reply.json()["error"]["code"]) == (503, "busy")
        assert "has just lost the model plain" in reply.json()["error"]["message"]
        await until(lambda: not here.proxy.shared.limiter.in_flight)
