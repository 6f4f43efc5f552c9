"""Queries about servers instead of models: liveness, readiness, metadata, and the caller's name."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from fastapi import Response
from tidegate_contracts.environments import WhoAmI

from .access.identity import Identity
from .config import LiveConfig
from .kinds import KINDS
from .memory import Reservation
from .openai.kind import NAME as OPENAI
from .openai.kind import model_entry
from .pools import ask
from .problems import Problem, ProblemType, other_protocol
from .routes import Route
from .shared_state import SharedState
from .triton.kind import as_served
from .whereabouts import whereabouts

AT_ONCE = 200  # Models that are written before others have their turn.
PERMITTED_AT_ONCE = 2000  # Models whose access rules are checked before others have their turn.
LISTED_BYTES = 256  # Memory for a model of a listing while that is made, in addition to its text.


@dataclass(eq=False)
class ServerQueries:
    """Answers queries about servers, as far as the caller can see them. A listing of thousands of models takes turns
    with other work, and its memory counts as its caller's."""

    _config: LiveConfig
    _shared: SharedState

    async def identify(self, credential: bytes) -> Identity:
        """Return the caller's identity. Raises Problem (unauthenticated, busy)."""
        return await self._config.authorizer.identify(credential)

    async def whoami(self, credential: bytes) -> Response:
        """Return the caller's name and groups, whatever its rights. Raises Problem (unauthenticated, busy)."""
        principal = (await self.identify(credential)).principal
        environment, groups = self._config.routes.environment, tuple(sorted(principal.groups))
        body = WhoAmI(environment=environment, principal=principal.name, groups=groups, source=principal.source)
        headers = {"cache-control": "no-store"}
        return Response(body.model_dump_json(by_alias=True), 200, headers, "application/json")

    async def whereabouts(self, credential: bytes, server: str | None, model: str | None) -> Response:
        """Return where a model, or each that the caller can inspect, is at every replica. Raises Problem."""
        routes = self._config.routes
        wanted = routes.of_server(server) if model is None else routes.find(server, model)
        identity = await self.identify(credential)
        async with self._listing(identity, len(wanted)) as hold:
            seen = await self._permitted(identity, wanted)
            if not seen and (server or model):
                what = "such server" if model is None else f"model {model!r}"
                raise Problem(ProblemType.UNKNOWN, f"There is no {what}, or you have no access to it.")
            seen.sort(key=lambda route: (route.name, route.server))
            permits, parts = self._config.authorizer.permits, []

            def sees(name: str, server: str) -> bool:
                return any(permits(identity, route, "inspect") for route in routes.find(server, name))

            describe, slices = await whereabouts(seen, sees)
            for some in _slices(seen, AT_ONCE):
                await self._shared.long_work.turn(identity.in_flight)
                parts.append(msgspec.json.encode(describe(some))[1:-1])
                hold(len(parts[-1]))
            ends = msgspec.json.encode(routes.environment), b",".join(parts), msgspec.json.encode(slices)
            body = b'{"environment":%b,"models":[%b],"slices":%b}' % ends
            return Response(body, 200, {"cache-control": "no-store"}, "application/json")

    async def openai_models(self, credential: bytes, server: str | None, model: str | None) -> Response:
        """Return the OpenAI models that the caller can inspect, or one, in the form of that API. Raises Problem."""
        if model is not None:
            route = (await self._config.authorizer.ask(credential, server, model, "inspect", OPENAI)).route
            return Response(model_entry(model, route.server), media_type="application/json")
        identity = await self.identify(credential)
        there = self._config.routes.of_server(server)
        async with self._listing(identity, len(there)) as hold:
            seen = await self._permitted(identity, there)
            routes = [route for route in seen if route.kind is KINDS[OPENAI]]
            if server is not None and not routes:
                raise other_protocol(server) if seen else _no_server()
            routes.sort(key=lambda route: (route.name, route.server))
            parts = []
            for some in _slices(routes, AT_ONCE):
                await self._shared.long_work.turn(identity.in_flight)
                listed = [model_entry(name, each.server) for each in some for name in (each.name, *each.served_names)]
                parts += listed
                hold(sum(map(len, listed)))
            return Response(b'{"object":"list","data":[%b]}' % b",".join(parts), media_type="application/json")

    async def live(self, credential: bytes, server: str | None) -> None:
        """Raise Problem unless the caller can see a server. Any caller can check that the proxy is alive."""
        if server is not None:
            await self.seen(credential, server)

    async def is_ready(self, credential: bytes, server: str | None) -> bool:
        """Return whether calls of a server, or of every server, would find a replica."""
        await self.live(credential, server)
        names = self._config.routes.servers if server is None else (server,)
        return not any(self.why_not_ready(name) for name in names)

    def why_not_ready(self, server: str) -> str | None:
        """Return why calls of a server's models would find no replica. Empty if they would, None if it is unknown.
        Pools without models count only if it has no others. Pools that the definition leaves empty never count."""
        routes = self._config.routes
        if server not in routes.servers:
            return None
        pools = routes.pools_of[server]
        pools = [pool for pool in pools if pool in routes.called] or pools
        return "; ".join(filter(None, (pool.why_not_ready() for pool in pools if not pool.config.empty)))

    def not_loaded(self, server: str) -> list[str]:
        """Return a line for each version that a replica of a server could not load, as far as known."""
        pools = self._config.routes.pools_of.get(server, [])
        return [line for pool in pools for watch in list(pool.watches.values()) for line in watch.failure_lines()]

    async def metadata(self, credential: bytes, server: str | None) -> Response:
        """Return the metadata of a server, or without a name of the first that the caller can see."""
        routes = await self.seen_v2(credential, server)
        answer = await ask(routes[0].pool, b"/v2", self._shared.call_seconds)
        body = as_served(answer.body) if answer.status == 200 else answer.body
        return Response(body, answer.status, {"content-type": answer.media_type})

    @asynccontextmanager
    async def _listing(self, identity: Identity, models: int) -> AsyncIterator[Callable[[int], None]]:
        """Count the memory for a listing as its caller's, and more as it grows. Raises Problem."""
        booking = Reservation(self._shared.memory.callers, identity.in_flight)
        try:
            booking.set(LISTED_BYTES * models)
            yield lambda more: booking.set(booking.size + 2 * more)  # once in pieces, once as a whole
        finally:
            booking.end()

    async def seen_v2(self, credential: bytes, server: str | None) -> list[Route]:
        """Return those routes of `seen` whose servers answer KServe v2's queries about servers. Raises Problem."""
        seen = await self.seen(credential, server)
        routes = [each for each in seen if each.kind.speaks_v2]
        if not routes:
            raise other_protocol(seen[0].server)
        return routes

    async def seen(self, credential: bytes, server: str | None) -> list[Route]:
        """Return the routes of a server, or of all, that the caller can inspect. Raises Problem."""
        identity = await self.identify(credential)
        if not (routes := await self._permitted(identity, self._config.routes.of_server(server))):
            raise _no_server()
        return routes

    async def _permitted(self, identity: Identity, routes: Iterable[Route]) -> list[Route]:
        permits, found = self._config.authorizer.permits, list[Route]()
        routes = [*routes]
        for some in _slices(routes, PERMITTED_AT_ONCE):
            if len(routes) > PERMITTED_AT_ONCE:
                await self._shared.long_work.turn(identity.in_flight)
            found += [route for route in some if permits(identity, route, "inspect")]
        return found


def _no_server() -> Problem:
    return Problem(ProblemType.UNKNOWN, "There is no such server, or you have no access to its models.")


def _slices(whole: Sequence[Route], size: int) -> Iterable[Sequence[Route]]:
    return (whole[at : at + size] for at in range(0, len(whole), size))
