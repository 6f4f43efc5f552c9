"""What is asked of servers, rather than of models: alive, ready, metadata, statistics; and the caller's name."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from time import monotonic
from typing import Any, TypeVar

from fastapi import Response
from tidegate_contracts.environments import WhoAmI

from .config import LiveConfig
from .pools import Pool, ask
from .problems import Problem, ProblemType, other_protocol
from .routes import Route
from .upstream.request import Answer

Found = TypeVar("Found")
UNAVAILABLE_HEADER = "tidegate-unavailable"  # Names the pools that an answer lacks, for they gave none.


@dataclass(eq=False)
class ServerQueries:
    """Answers from the servers' own, as far as the caller may see them."""

    _config: LiveConfig
    _seconds: float

    async def whoami(self, credential: bytes) -> Response:
        """Answer by which name the caller is known, whatever rules grant it; raises Problem (unauthenticated, busy)."""
        principal = (await self._config.authorizer.identify(credential)).principal
        environment, groups = self._config.routes.environment, tuple(sorted(principal.groups))
        said = WhoAmI(environment=environment, principal=principal.name, groups=groups, source=principal.source)
        headers = {"cache-control": "no-store"}
        return Response(said.model_dump_json(by_alias=True), 200, headers, "application/json")

    async def live(self, credential: bytes, server: str | None) -> None:
        """Raise Problem unless the caller may know that a server is alive; any may ask whether the proxy is."""
        if server is not None:
            await self.seen(credential, server)

    async def is_ready(self, credential: bytes, server: str | None) -> bool:
        """Tell whether a replica of a server, or of every server, can be used."""
        await self.live(credential, server)
        names = self._config.routes.servers if server is None else (server,)
        return not any(self.why_not_ready(name) for name in names)

    def why_not_ready(self, server: str) -> str | None:
        """Return why no replica of a server can be used, or nothing; None for a server that nobody knows."""
        routes = self._config.routes
        if server not in routes.servers:
            return None
        now = monotonic()
        pools = [pool for (name, _), pool in routes.pools.items() if name == server]
        replicas = [replica for pool in pools for replica in pool.replicas]
        if not replicas:
            return f"no replica of {server} is there: {', '.join(pool.config.host for pool in pools)}"
        if not any(replica.breaker.allows(now) for replica in replicas):
            return f"no replica of {server} answers: {', '.join(replica.name for replica in replicas)}"
        return ""

    async def metadata(self, credential: bytes, server: str | None) -> Answer:
        """Return what the server says of itself; without a name, the first that the caller may see."""
        routes = await self.asked(credential, server)
        return await ask(routes[0].pool, b"/v2", self._seconds)

    async def statistics(self, credential: bytes, server: str | None) -> Response:
        """Answer the statistics of every model that the caller may inspect; unavailable pools are named in a header."""
        whole: list[Answer] = []

        async def of_pool(pool: Pool, visible: set[str]) -> list[Any]:
            answer = await ask(pool, b"/v2/models/stats", self._seconds)
            whole.append(answer)
            return _stats(pool, answer, visible)

        try:
            found, missing = await self.of_each_pool(await self.asked(credential, server), of_pool)
        except Problem:
            if len(whole) == 1 and whole[0].status != 200:
                return as_it_is(whole[0])
            raise
        headers = {UNAVAILABLE_HEADER: missing} if missing else None
        body = json.dumps({"model_stats": [*chain(*found)]}, separators=(",", ":"))
        return Response(body, 200, headers, "application/json")

    async def of_each_pool(
        self,
        routes: Iterable[Route],
        ask_pool: Callable[[Pool, set[str]], Awaitable[Found]],
        refusals: tuple[type[Exception], ...] = (Problem,),
    ) -> tuple[list[Found], str]:
        """Ask a replica of each pool about the models in it that these routes lead to: `ask_pool` gets their names.

        Returns what was found, and the names of the pools that gave a refusal; raises the first where none gave more.
        """
        models: dict[Pool, set[str]] = {}
        for route in routes:
            models.setdefault(route.pool, set()).add(route.name)
        found, failed = [], {}
        answers = await asyncio.gather(*(ask_pool(*each) for each in models.items()), return_exceptions=True)
        for pool, answer in zip(models, answers, strict=True):
            if isinstance(answer, refusals):
                failed[pool.name] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append(answer)
        if not found:
            raise next(iter(failed.values()))
        return found, ", ".join(failed)

    async def asked(self, credential: bytes, server: str | None, *, over_grpc: bool = False) -> list[Route]:
        """Return those routes of `seen` whose servers answer KServe v2's questions about a server; raises Problem."""
        seen = await self.seen(credential, server)
        routes = [each for each in seen if (each.kind.speaks_grpc if over_grpc else each.kind.answers_v2)]
        if not routes:
            raise other_protocol(seen[0].server)
        return routes

    async def seen(self, credential: bytes, server: str | None) -> list[Route]:
        """Return the routes of a server, or of all, that the caller may inspect; raises Problem."""
        identity = await self._config.authorizer.identify(credential)
        permits = self._config.authorizer.permits
        routes = [route for route in self._config.routes.of_server(server) if permits(identity, route, "inspect")]
        if not routes:
            raise Problem(ProblemType.UNKNOWN, "There is no such server, or none of its models is for you to see.")
        return routes


def _stats(pool: Pool, answer: Answer, visible: set[str]) -> list[Any]:
    """Return the statistics of the visible models; raises Problem where a pool's answer has none."""
    if answer.status != 200:
        raise Problem(ProblemType.UPSTREAM, f"{pool.name} answers {answer.status} when it is asked for statistics.")
    try:
        return [each for each in json.loads(answer.body)["model_stats"] if each["name"] in visible]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Problem(ProblemType.UPSTREAM, f"What {pool.name} answers is no statistics.") from None


def as_it_is(answer: Answer) -> Response:
    """Return a server's answer as it is passed on."""
    return Response(answer.body, answer.status, {"content-type": answer.media_type})
