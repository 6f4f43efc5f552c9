import time
from collections.abc import Iterable
from typing import Any

import pytest
from tidegate_contracts.routing import AccessRule, AccessTable, Model, OidcIssuer, Pool, RateLimit, RoutingTable, Server
from tidegate_proxy import pools
from tidegate_proxy.access.authorizer import Authorizer
from tidegate_proxy.access.web_client import WebClient
from tidegate_proxy.problems import Problem, ProblemType
from tidegate_proxy.routes import Routes

from ..rigs.issuer import Issuer

WEBS: list[WebClient] = []  # Authorizers of a test, to be closed with it.


class Clock:
    """A clock that starts at the real time, because tokens are signed with real times, and moves only when set."""

    def __init__(self) -> None:
        self.wall_now = time.time()
        self.now = time.monotonic()

    def wall(self) -> float:
        return self.wall_now

    def monotonic(self) -> float:
        return self.now

    def goes_on(self, seconds: float) -> None:
        self.wall_now += seconds
        self.now += seconds


def rule(**more: Any) -> AccessRule:
    usual: dict[str, Any] = {"name": "r", "actions": ("infer", "inspect"), "servers": ("*",), "models": ("*",)}
    return AccessRule(**(usual | more))


def issuer_of(provider: Issuer, **more: Any) -> OidcIssuer:
    return provider.entry.model_copy(update=more)


def access(*rules: AccessRule, issuers: Iterable[OidcIssuer] = (), a_minute: int = 600, burst: int = 10) -> AccessTable:
    limit = RateLimit(requests_per_minute=a_minute, burst=burst)
    return AccessTable(issuers=tuple(issuers), rules=rules, rate_limit=limit)


def routes(*models: str, kind: str = "triton") -> Routes:
    """A table of models, each written as `server/model`, at servers of a kind."""
    placed = [model.split("/") for model in models]
    pool = Pool(name="main", host="pool.example", http_port=8000, grpc_port=8001, loading="preload")
    servers = tuple(
        Server(name=name, kind=kind, pools=(pool,)) for name in dict.fromkeys(server for server, _ in placed)
    )
    table = RoutingTable(
        environment="dev",
        servers=servers,
        models=tuple(Model(name=model, server=server, pool="main") for server, model in placed),
    )
    made = Routes(table, {(each.name, pool.name): pools.Pool(each.name, pool, b"/") for each in servers})
    for model in table.models:
        made.add([model], model.name.encode())
    return made


def gate(table: AccessTable, clock: Clock | None = None, *, seconds: float = 5.0, **more: Any) -> Authorizer:
    """An authorizer for two servers: `main` has a and b, `other` has b and c."""
    WEBS.append(WebClient(seconds))
    usual: dict[str, Any] = {"web": WEBS[-1]}
    if clock is not None:
        usual |= {"wall": clock.wall, "clock": clock.monotonic}
    where = more.pop("where", None) or routes("main/a", "main/b", "other/b", "other/c")
    return Authorizer(table, where, **(usual | more))


def gate_for(provider: Issuer, clock: Clock | None = None, *, seconds: float = 5.0, **more: Any) -> Authorizer:
    keys = more.pop("keys", {})
    return gate(
        access(rule(principals=("*",)), issuers=[issuer_of(provider, **more)]), clock, seconds=seconds, keys=keys
    )


async def problem_of(authorizer: Authorizer, credential: bytes, model: str = "a", **more: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        await authorizer.ask(credential, more.get("server"), model, more.get("action", "infer"))
    return caught.value


async def kind_of(authorizer: Authorizer, credential: bytes, model: str = "a", **more: Any) -> ProblemType:
    return (await problem_of(authorizer, credential, model, **more)).type
