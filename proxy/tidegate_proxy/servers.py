"""What is asked of servers, rather than of models: alive, ready, metadata, statistics of all models; and who asks."""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import Response
from tidegate_contracts.environments import WhoAmI

from .access.authorizer import Authorizer
from .pools import Pool, ask
from .problems import Kind, Problem
from .routes import Route, Routes
from .upstream.request import Answer

UNAVAILABLE_HEADER = "tidegate-unavailable"
"""Names the pools that an answer lacks, for they gave none."""


class ServerQueries:
    """Answers from the servers' own, as far as the caller may see them."""

    def __init__(self, authorizer: Authorizer, routes: Callable[[], Routes], seconds: float) -> None:
        self._authorizer = authorizer
        self._routes = routes
        self._seconds = seconds

    async def whoami(self, credential: bytes) -> Response:
        """Answer as whom the caller is known, whatever rules grant it; raises Problem (unauthenticated, busy)."""
        principal = (await self._authorizer.identify(credential)).principal
        said = WhoAmI(
            environment=self._routes().environment,
            principal=principal.name,
            groups=tuple(sorted(principal.groups)),
            source=principal.source,
        )
        headers = {"cache-control": "no-store"}
        return Response(said.model_dump_json(by_alias=True), 200, headers, "application/json")

    async def live(self, credential: bytes, server: str | None) -> Response:
        """Answer as Triton does, without a body; any caller may ask whether the proxy is alive."""
        if server is not None:
            await self.seen(credential, server)
        return _empty(200)

    async def ready(self, credential: bytes, server: str | None) -> Response:
        """Answer whether a replica of a server, or of every server, can be used: 200, or 400 as Triton does."""
        if server is not None:
            await self.seen(credential, server)
        now = asyncio.get_running_loop().time()
        pools = self._routes().pools.values()
        up = {pool.server: False for pool in pools if server in (None, pool.server)}
        for pool in pools:
            if pool.server in up and any(replica.breaker.allows(now) for replica in pool.replicas):
                up[pool.server] = True
        return _empty(200 if all(up.values()) else 400)

    async def metadata(self, credential: bytes, server: str | None) -> Response:
        """Answer what the server says of itself; without a name, the first that the caller may see."""
        routes = await self.seen(credential, server)
        return _as_it_is(await self._ask(routes[0].pool, b"/v2"))

    async def statistics(self, credential: bytes, server: str | None) -> Response:
        """Answer the statistics of every model that the caller may inspect, from a replica of each pool.

        Pools that give none are left out, and named in a header; raises Problem when no pool gives any.
        """
        routes = await self.seen(credential, server)
        pools = list({id(route.pool): route.pool for route in routes}.values())
        answers = await asyncio.gather(
            *(self._ask(pool, b"/v2/models/stats") for pool in pools), return_exceptions=True
        )
        if len(pools) == 1 and isinstance(answers[0], Answer) and answers[0].status != 200:
            return _as_it_is(answers[0])
        found: list[Any] = []
        problems: dict[str, Problem] = {}
        for pool, answer in zip(pools, answers, strict=True):
            try:
                found += _stats(pool, answer, {route.name for route in routes if route.pool is pool})
            except Problem as problem:
                problems[f"{pool.server}/{pool.name}"] = problem
        if len(problems) == len(pools):
            raise next(iter(problems.values()))
        headers = {UNAVAILABLE_HEADER: ", ".join(problems)} if problems else None
        return Response(json.dumps({"model_stats": found}, separators=(",", ":")), 200, headers, "application/json")

    async def seen(self, credential: bytes, server: str | None) -> list[Route]:
        """Return the routes of a server, or of all, that the caller may inspect; raises Problem."""
        identity = await self._authorizer.identify(credential)
        routes = self._inspectable(identity, self._routes().of_server(server))
        if not routes:
            raise Problem(Kind.UNKNOWN, "There is no such server, or none of its models is for you to see.")
        return routes

    def _inspectable(self, identity: Any, routes: Iterable[Route]) -> list[Route]:
        return [route for route in routes if self._authorizer.permits(identity, route, "inspect")]

    async def _ask(self, pool: Pool, path: bytes) -> Answer:
        return await ask(pool, path, self._seconds)


def _stats(pool: Pool, answer: Answer | BaseException, visible: set[str]) -> list[Any]:
    """Return the statistics of the visible models; raises Problem where a pool's answer has none."""
    if isinstance(answer, BaseException):
        raise answer
    where = f"{pool.server}/{pool.name}"
    if answer.status != 200:
        raise Problem(Kind.UPSTREAM, f"{where} answers {answer.status} when it is asked for statistics.")
    try:
        return [each for each in json.loads(answer.body)["model_stats"] if each["name"] in visible]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Problem(Kind.UPSTREAM, f"What {where} answers is no statistics.") from None


def _as_it_is(answer: Answer) -> Response:
    return Response(answer.body, answer.status, {"content-type": answer.media_type})


def _empty(status: int) -> Response:
    return Response(status_code=status, headers={"content-type": "text/plain"})
