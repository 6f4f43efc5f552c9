"""The routing table in use: servers, pools and models, and facts learned about a model."""

import asyncio
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import random
from time import monotonic

from tidegate_contracts import routing

from .concurrency import InFlightCount
from .kinds import KINDS
from .pools import Pool, ask
from .problems import Problem, ProblemType, TableError
from .server_kind import ServerKind
from .targets import Target, is_version
from .telemetry.meter import CallCount

ANSWER_SECONDS = 5.0


@dataclass(slots=True, eq=False, repr=False)
class _ConfigLookup:
    """A fact from one model's configuration at a replica. Calls that come during a query share it."""

    _model: str
    _pool: Pool
    _kind: ServerKind
    _query_at: float = 0.0
    _querying: asyncio.Task[None] | None = None
    _why: str = "it was not queried yet"  # The cause if the fact is unknown.
    is_old: bool = True  # Whether tables have changed since the last query began, or it failed.

    def _look(self, now: float, take: Callable[[bytes], None], seconds: float = ANSWER_SECONDS) -> None:
        """Query the configuration, unless a query runs or has just ended. It can take so many seconds. `take` reads the
        fact from the configuration, or raises ValueError."""
        if now >= self._query_at and self._querying is None:
            self._query_at, self.is_old = now + self._pool.tunables.retry_seconds, False
            self._querying = asyncio.get_running_loop().create_task(self._query(take, seconds))

    async def _queried(self) -> None:
        if self._querying is not None:
            await asyncio.shield(self._querying)

    async def _query(self, take: Callable[[bytes], None], seconds: float) -> None:
        try:
            take(await self._configuration(seconds))
        except ValueError as error:
            self._why, self.is_old = str(error), True
        except Problem as problem:
            self._why, self.is_old = problem.detail.rstrip("."), True
        finally:
            self._querying = None

    async def _configuration(self, seconds: float) -> bytes:
        """Return the model's configuration from a replica that has it loaded. Raises ValueError or Problem."""
        pool, replica = self._pool, None
        if pool.leases is not None:
            if (lease := pool.leases.find(self._model, monotonic())) is None:
                raise ValueError("the model is not loaded")
            replica = lease.replica
        answer = await ask(pool, self._kind.config_path(self._model), seconds, replica)
        if answer.status != 200:
            raise ValueError(f"the inference server returned {answer.status} for the model's configuration")
        return answer.body


class Alias(_ConfigLookup):
    """An alias of a version of one model on one server."""

    __slots__ = ("_holds_until", "_name", "_version")

    def __init__(self, name: str, model: str, pool: Pool, kind: ServerKind) -> None:
        super().__init__(model, pool, kind)
        self._name = name
        self._version: str | None = None
        self._holds_until = 0.0

    def known(self, now: float) -> str | None:
        """Return the version if known. If it was read some seconds ago, read it again in the background."""
        if now >= self._query_at:
            self._look(now, self._take)
        return self._version if now < self._holds_until else None

    async def find(self) -> str:
        """Return the version. Raises Problem (busy) if it is unknown."""
        version = self.known(monotonic())
        if version is None:
            await self._queried()
            version = self.known(monotonic())
        if version is None:  # no other version may take its place
            which = f"The proxy does not know which version of the model {self._model} its alias {self._name} means"
            seconds = self._pool.tunables.retry_seconds
            raise Problem(ProblemType.BUSY, f"{which}: {self._why}.", seconds, reason="alias-unknown")
        return version

    def _take(self, config: bytes) -> None:
        parameter, value = self._kind.alias(config, self._name)
        now, tunables = monotonic(), self._pool.tunables
        if is_version(value):
            self._version, self._holds_until = value, now + tunables.alias_hold_seconds
            self._query_at = now + tunables.alias_seconds
        else:
            self._version, self._holds_until = None, 0.0
            raise ValueError(f"the parameter {parameter} of the model's configuration is not the number of a version")


@dataclass(slots=True, eq=False, repr=False)
class Sequences(_ConfigLookup):
    """Whether one model on one server keeps sequences."""

    known: bool | None = None  # None while unknown.

    def ask_again(self) -> None:
        """Query a known value again in the background. It holds until then."""
        if self.known is not None:
            self._look(monotonic(), self._take)

    async def find(self, seconds: float) -> bool | None:
        """Return whether the model keeps sequences. None if no replica responds within `seconds`. Requests that come
        meanwhile wait too, because they can belong to sequences that have just begun."""
        if self.known is None:
            self._look(monotonic(), self._take, seconds)
            await self._queried()
        return self.known

    def _take(self, config: bytes) -> None:
        self.known = self._kind.keeps_sequences(config)


_MOST_HEADS = 64  # Kinds of calls of one model whose first lines are cached.


class Route:
    """One model on one server: its pools, and the choice of a version. `pool` is the first if versions have several."""

    __slots__ = (
        "_ends", "_heads", "_pools", "alias", "grpc_count", "has_usage", "http_count", "in_flight",
        "is_split", "key", "kind", "name", "names", "pool", "pools", "sequences", "served_names", "server",
        "versions",
    )  # fmt: skip

    def __init__(
        self, parts: Sequence[routing.Model], server: routing.Server, pools: Mapping[tuple[str, str], Pool]
    ) -> None:
        """`parts` are the table's entries of the model, one for each of its pools."""
        model = parts[0]
        self.name = model.name
        self.server = server.name
        self.key = self.server, self.name
        self.kind = KINDS[server.kind]
        self.has_usage = self.kind.usage_of is not None  # Whether its responses report the tokens of their calls.
        self.pools = [pools[part.server, part.pool] for part in parts]
        self.pool = pool = self.pools[0]
        self.is_split = len(self.pools) > 1  # Whether its versions have separate pools.
        there = zip(self.pools, parts, strict=True)
        self._pools = {str(share.version): pool for pool, part in there for share in part.versions}
        shares = [share for part in parts for share in part.versions if share.weight]
        self.versions = [str(share.version) for share in shares]
        self._ends = [end / 100 for end in accumulate(share.weight for share in shares)]
        self.alias = Alias(model.alias, model.name, pool, self.kind) if model.alias is not None else None
        """Chooses the version of requests that name none, if the model has one."""
        self.sequences = Sequences(model.name, pool, self.kind)  # Whether the model keeps sequences.
        self.served_names = tuple(dict.fromkeys(name for part in parts for name in part.served_names or ()))
        self.names: dict[str, str | None] = dict.fromkeys(self.served_names)
        """Other names for calls, and the version that each means. None for a name that leaves it open."""
        for version in self._pools:
            if (called := self.kind.version_name(self.name, version)) is not None:
                self.names[called] = version
        self._heads: dict[tuple[str, str | None], bytes] = {}
        self.http_count: CallCount | None = None  # Counts its calls over HTTP, once there was one.
        self.grpc_count: CallCount | None = None  # The same over gRPC.
        self.in_flight = InFlightCount()  # Its calls in progress.

    def pool_of(self, version: str | None) -> Pool:
        """Return the pool that serves a version. None means the version that the server chooses."""
        return self.pool if version is None else self._pools.get(version, self.pool)

    def versions_in(self, pool: Pool) -> list[str]:
        """Return those of its versions that a pool serves, as far as the table names versions."""
        return [version for version, there in self._pools.items() if there is pool]

    def must_know_sequence(self, named: str | None) -> bool:
        """Return whether a request for a version (or None) can reach a wrong replica unless its sequence is known."""
        if len(self.pool.replicas) < 2 and (named is not None or len(self.versions) < 2):
            return False
        if self.sequences.is_old:
            self.sequences.ask_again()
        return self.sequences.known is not False

    def version(self, named: str | None, sticky: bytes | None) -> str | None:
        """Return the version that serves a request: the named one, or else one by share. None leaves it to the server.

        If the model has an alias, call that instead. Requests with the same sticky value get the same version for as
        long as the shares stay the same.
        """
        versions = self.versions
        if named is not None or not versions:
            return named
        if len(versions) == 1:
            return versions[0]
        return versions[bisect_right(self._ends, random() if sticky is None else _point(self.name, sticky))]

    def first_lines(self, target: Target, version: str | None) -> bytes:
        """Return the first line of a request to a replica, and its Host header."""
        lines = self._heads.get((target.verb, version))
        if lines is None:
            path, host = self.kind.path(target, version), self.pool_of(version).config.host.encode()
            lines = b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (target.method, path, host)
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()  # callers invented versions
            self._heads[target.verb, version] = lines
        return lines


def _point(model: str, sticky: bytes) -> float:
    digest = hashlib.blake2b(sticky, digest_size=7, key=model.encode()[:64]).digest()
    return int.from_bytes(digest, "big") / (1 << 56)


class Routes:
    """The whole table, immutable. A new table is a new object, and keeps the routes of unchanged models."""

    def __init__(self, table: routing.RoutingTable, pools: Mapping[tuple[str, str], Pool]) -> None:
        self.environment = table.environment
        self.pools = pools
        self.servers = {each.name: each for each in table.servers}
        self.pools_of: dict[str, list[Pool]] = {name: [] for name in self.servers}
        for (server, _), pool in pools.items():
            self.pools_of[server].append(pool)
        self.called: set[Pool] = set()  # Pools that have models.
        self.expected: dict[tuple[str, str], list[tuple[str, str]]] = {}
        """By server and pool: models, with those of their versions that calls go to by name."""
        self._by_text: dict[bytes, Route] = {}
        self._by_server: dict[tuple[str, str], Route] = {}
        self._by_model: dict[str, list[Route]] = {}

    def add(self, parts: Sequence[routing.Model], text: bytes) -> None:
        """Add a model with its text in the file, while the table is being built. Raises TableError."""
        self.keep(Route(parts, self.servers[parts[0].server], self.pools), text)

    def keep(self, route: Route, text: bytes) -> None:
        """Add a model with its route in the old table. Raises TableError for a name that another one has."""
        self._by_text[text] = route
        for name in (route.name, *route.names):
            if self._by_server.setdefault((route.server, name), route) is not route:
                raise TableError(f"server {route.server} has two models with the name {name}")
            self._by_model.setdefault(name, []).append(route)
        self.called.update(route.pools)
        for version in route.versions:
            pool = route.pool_of(version).config.name
            self.expected.setdefault((route.server, pool), []).append((route.name, version))
        route.sequences.is_old = True

    def by_source_text(self, text: bytes) -> Route | None:
        """Return the route of the model that has this text in the file."""
        return self._by_text.get(text)

    def find(self, server: str | None, model: str) -> Sequence[Route]:
        """Return the routes of a model: none for an unknown name, several if calls must name the server."""
        if server is None:
            return self._by_model.get(model, ())
        route = self._by_server.get((server, model))
        return () if route is None else (route,)

    def of_server(self, server: str | None) -> Sequence[Route]:
        return [each for (at, name), each in self._by_server.items() if server in (None, at) and name == each.name]
