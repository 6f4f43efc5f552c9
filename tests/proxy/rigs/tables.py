"""A proxy's tables for one Triton: all of its models, for every member of a group."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidegate_contracts import routing
from tidegate_proxy.access.api_keys import new_key

from lab.local_plane.process import HOST
from lab.local_plane.proxy import ENVIRONMENT, Proxy, proxy, write_keys, write_tables

from .issuer import Issuer

SERVER, POOL = "triton", "cpu"
GROUP, CALLER = "callers", "ci"
MANY = 600_000_000


def routing_table(http_port: int, grpc_port: int, models: Sequence[str | routing.Model]) -> routing.RoutingTable:
    """Return a table with one pool of one local replica, and these models. A plain name is a model without options."""
    pool = routing.Pool(name=POOL, host=HOST, http_port=http_port, grpc_port=grpc_port, loading="preload")
    return routing.RoutingTable(
        environment=ENVIRONMENT,
        servers=(routing.Server(name=SERVER, kind="triton", pools=(pool,)),),
        models=tuple(
            routing.Model(name=model, server=SERVER, pool=POOL) if isinstance(model, str) else model for model in models
        ),
    )


def access_table(
    issuers: Sequence[Issuer] = (), requests_per_minute: int = MANY, burst: int = MANY, caller: str = CALLER
) -> routing.AccessTable:
    """Return a table that allows everything to an API-key caller and to a group, without effective limits."""
    rule = routing.AccessRule(
        name="callers",
        principals=(caller,),
        groups=(GROUP,),
        actions=("infer", "inspect"),
        servers=("*",),
        models=("*",),
    )
    return routing.AccessTable(
        issuers=tuple(each.entry for each in issuers),
        rules=(rule,),
        rate_limit=routing.RateLimit(requests_per_minute=requests_per_minute, burst=burst),
    )


def write_key(root: Path, key: str, caller: str = CALLER) -> None:
    write_keys(root, {caller: key})


@contextmanager
def keyed_proxy(
    root: Path, table: routing.RoutingTable, issuers: Sequence[Issuer] = (), caller: str = CALLER, **settings: str
) -> Iterator[tuple[Proxy, str]]:
    key = new_key()
    write_tables(root, table, access_table(issuers, caller=caller))
    write_key(root, key, caller)
    with proxy(root, settings={"api_keys": "true"} | settings) as running:
        yield running, key
