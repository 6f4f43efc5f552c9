"""The tables of a proxy in front of servers that speak OpenAI's API."""

from collections.abc import Sequence
from functools import partial

from tidegate_contracts import routing

from ..http import running_proxy

SERVER = "llm"


def openai_server(name: str = SERVER, host: str = "pool.test", port: int = 8000, **hosts: str) -> routing.Server:
    pools = {"main": host, **hosts}
    return routing.Server(
        name=name,
        kind="openai",
        pools=tuple(
            routing.Pool(name=pool, host=at, http_port=port, grpc_port=port, loading="preload")
            for pool, at in pools.items()
        ),
    )


model = partial(running_proxy.model, server=SERVER)


def table(models: Sequence[routing.Model], *servers: routing.Server) -> routing.RoutingTable:
    return routing.RoutingTable(environment="test", servers=servers or (openai_server(),), models=tuple(models))


def access(*rules: tuple[str, Sequence[str], Sequence[routing.Action]], burst: int = 10**6) -> routing.AccessTable:
    """Return a table that grants each principal these actions on these models, at so many requests at once."""
    made = (
        routing.AccessRule(
            name=f"rule-{n}", principals=(who,), actions=tuple(what), servers=("*",), models=tuple(which)
        )
        for n, (who, which, what) in enumerate(rules)
    )
    limit = routing.RateLimit(requests_per_minute=burst, burst=burst)
    return routing.AccessTable(rules=tuple(made), rate_limit=limit)
