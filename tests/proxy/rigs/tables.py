"""The tables of a proxy in front of one Triton: all of its models, for everybody of a group."""

from collections.abc import Sequence

from tidegate_contracts import routing

from lab.local_plane.process import HOST
from lab.local_plane.proxy import ENVIRONMENT

from .issuer import Issuer

SERVER, POOL = "triton", "cpu"
GROUP = "callers"


def routing_table(http_port: int, grpc_port: int, models: Sequence[str | routing.Model]) -> routing.RoutingTable:
    """Return a table with one pool of one replica here, and these models in it; a name alone is a plain model."""
    pool = routing.Pool(name=POOL, host=HOST, http_port=http_port, grpc_port=grpc_port, loading="preload")
    return routing.RoutingTable(
        environment=ENVIRONMENT,
        servers=(routing.Server(name=SERVER, kind="triton", pools=(pool,)),),
        models=tuple(
            routing.Model(name=model, server=SERVER, pool=POOL) if isinstance(model, str) else model for model in models
        ),
    )


def access_table(issuers: Sequence[Issuer], requests_per_minute: int = 600_000_000) -> routing.AccessTable:
    """Return a table in which those of the group may do all; its limit counts, and is out of reach by default."""
    rule = routing.AccessRule(
        name="callers", groups=(GROUP,), actions=("infer", "inspect"), servers=("*",), models=("*",)
    )
    return routing.AccessTable(
        issuers=tuple(each.told for each in issuers),
        rules=(rule,),
        rate_limit=routing.RateLimit(requests_per_minute=requests_per_minute, burst=requests_per_minute),
    )
