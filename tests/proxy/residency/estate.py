"""Proxies in the test's own event loop, in front of a pool whose models are loaded on demand."""

import json
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tidegate_contracts import routing
from tidegate_proxy.residency.manager import LeaseManager
from tidegate_proxy.settings import Tunables

from ..http.running_proxy import Reply, RunningProxy, request, routing_table, running_proxy
from .standin import Site

MODELS = ("a", "b", "c", "d", "slow", "cold", "absent")
OFTEN = Tunables(rebalance_seconds=0.02, lease_again_seconds=0.1)


class Estate(RunningProxy):
    @property
    def leases(self) -> LeaseManager:
        found = self.pool.leases
        assert isinstance(found, LeaseManager)
        return found

    async def call(self, model: str, seconds: float = 20, **headers: str) -> Reply:
        return await self.ask(request(f"/v2/models/{model}/infer", **headers), seconds)  # type: ignore[arg-type]

    async def look(self, path: str, seconds: float = 20) -> Reply:
        return await self.ask(request(f"/v2/models/{path}", method="GET"), seconds)

    def held(self) -> dict[str, list[str]]:
        found = defaultdict(list)
        for model, held in self.leases.table.models.items():
            for lease in held.leases:
                found[lease.replica.address[0]].append(model)
        return found


def at(reply: Reply) -> str:
    assert reply.status == 200, reply.body
    return str(json.loads(reply.body)["at"])


def table(here: Sequence[Site], **pool: Any) -> routing.RoutingTable:
    ports = {"http_port": here[0].triton.port, "lease_port": here[0].policy.port}
    return routing_table(MODELS, loading="on-demand", **ports | pool)


@asynccontextmanager
async def estate(root: Path, here: Sequence[Site], tunables: Tunables = OFTEN, **more: Any) -> AsyncIterator[Estate]:
    addresses = [(socket.AF_INET, (site.host, site.triton.port)) for site in here]
    async with running_proxy(root, *addresses, table=table(here), kind=Estate, tunables=tunables, **more) as made:
        assert isinstance(made, Estate)
        yield made


@asynccontextmanager
async def estates(root: Path, here: Sequence[Site], number: int, **more: Any) -> AsyncIterator[list[Estate]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(estate(root / str(each), here, **more)) for each in range(number)]
