"""Tables that mean nothing are refused with one clear line, and what was in use stays."""

import json
import resource
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tidegate_contracts import routing
from tidegate_proxy import config
from tidegate_proxy.config import WatchedFile, access_table, routing_table
from tidegate_proxy.problems import TableError

from ..http.house import address_of, house, until

pytestmark = pytest.mark.anyio

POOL = {"name": "main", "host": "h", "httpPort": 1, "grpcPort": 2, "loading": "preload"}
SERVER = {"name": "s", "kind": "triton", "pools": [POOL]}
MODEL = {"name": "m", "server": "s", "pool": "main"}


def shares(*weights: int, **more: Any) -> dict[str, Any]:
    versions = [{"version": number, "weight": weight} for number, weight in enumerate(weights, 1)]
    return {"models": [{**MODEL, "versions": versions, **more}]}


def said(**more: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "version": 1,
        "environment": "e",
        "servers": [SERVER],
        "models": [MODEL],
    }
    return {**usual, **more}


def pooled(**more: Any) -> dict[str, Any]:
    return {"servers": [{**SERVER, "pools": [POOL | more]}]}


UNREACHABLE = ("", "\0", "a..b", "a" * 64, "é", "a\r\nX: y", "a b")
REFUSED = [
    (shares(10, 10), "models.0: the shares of model m's versions must sum to 100, and they sum to 20"),
    (shares(0, 0), "models.0: the shares of model m's versions must sum to 100, and they sum to 0"),
    (shares(100, alias="champion"), "models.0: model m has shares of versions and an alias"),
    (
        {"models": [{**MODEL, "versions": [{"version": 3, "weight": 50}] * 2}]},
        "models.0: model m has the version 3 twice",
    ),
    ({"models": [MODEL, MODEL]}, "model m stands twice on server s"),
    ({"models": [{**MODEL, "pool": "other"}]}, "model m is in s/other, a pool that the table does not have"),
    ({"models": [{"name": "m"}]}, "models.0.server: Field required (and 1 more)"),
    ({"servers": [{**SERVER, "pools": [POOL, POOL]}]}, "servers.0: server s has the pool main twice"),
    ({"servers": [SERVER, SERVER]}, "it: the table has the server s twice"),
    *((pooled(host=host), "servers.0.pools.0.host: String should ") for host in UNREACHABLE),
    (pooled(httpPort=0), "servers.0.pools.0.httpPort: Input should be greater than or equal to 1"),
    (pooled(grpcPort=2**70), "servers.0.pools.0.grpcPort: Input should be less than or equal to 65535"),
    (pooled(leasePort=-1), "servers.0.pools.0.leasePort: Input should be greater than or equal to 1"),
]
TAKEN = [
    *(shares(20, 80), shares(100, 0), shares(), {"models": [{**MODEL, "alias": "champion"}]}),
    *(pooled(host=host) for host in ("replicas", "10.0.0.1", "::1", "fe80::1", "my_svc.ns-1.svc.cluster.local.")),
]
LIMITS = [
    ({"requestsPerMinute": 0, "burst": 1}, "rateLimit.requestsPerMinute: Input should be greater than or equal"),
    ({"requestsPerMinute": 1, "burst": 0}, "rateLimit.burst: Input should be greater than or equal to 1"),
]


@pytest.mark.parametrize(("more", "why"), REFUSED, ids=range(len(REFUSED)))
async def test_a_routing_table_that_means_nothing_is_refused_in_one_line(more: dict[str, Any], why: str) -> None:
    with pytest.raises(TableError) as caught:
        await routing_table(json.dumps(said(**more)).encode())
    assert str(caught.value).startswith(why)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="s"):
        routing.RoutingTable.model_validate_json(json.dumps(said(**more)))


async def test_a_kind_of_server_that_the_proxy_does_not_know_is_refused_in_one_line() -> None:
    servers = [{**SERVER, "kind": "dynamo"}]
    with pytest.raises(TableError, match=r"^server s: this proxy knows no kind 'dynamo'$"):
        await routing_table(json.dumps(said(servers=servers)).encode())


@pytest.mark.parametrize("more", TAKEN, ids=range(len(TAKEN)))
async def test_a_table_that_means_something_is_taken(more: dict[str, Any]) -> None:
    found = await routing_table(json.dumps(said(**more)).encode())
    assert found == routing.RoutingTable.model_validate_json(json.dumps(said(**more)))


@pytest.mark.parametrize(("limit", "why"), LIMITS)
async def test_a_limit_that_lets_nobody_through_is_refused(limit: dict[str, int], why: str) -> None:
    with pytest.raises(TableError) as caught:
        await access_table(json.dumps({"rateLimit": limit}).encode())
    assert str(caught.value).startswith(why)


async def test_a_good_table_that_could_not_be_read_for_a_while_is_read_then(tmp_path: Path) -> None:
    file, used = tmp_path / "routing.json", []

    async def use(data: bytes) -> None:
        used.append(data)

    watched = WatchedFile("routing", file, Path.read_bytes, use)
    file.write_bytes(b"1")
    await watched.load()
    file.write_bytes(b"22")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for _ in range(3):
            await watched.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (watched.failures, watched.last_error) == (1, "it cannot be read: Too many open files"), "told once"
    for _ in range(2):
        await watched.look()
    assert (used, watched.generation, watched.last_error) == ([b"1", b"22"], 2, "")


async def test_the_last_number_of_replicas_stays_while_their_name_leads_nowhere(tmp_path: Path) -> None:
    with patch.object(config, "REPLICAS_SECONDS", 0.01):
        async with house(tmp_path) as here:
            following, counted = here.proxy.config, []
            found = [address_of(port) for port in range(1, 6)]

            async def find(_: str, __: int) -> list[Any]:
                counted.append(len(found))
                return list(found)

            following._find = find
            await until(lambda: following.authorizer._replicas == 5)
            found.clear()
            await until(lambda: counted.count(0) > 3)
            assert following.authorizer._replicas == 5
            found.append(address_of(1))
            await until(lambda: following.authorizer._replicas == 1)
