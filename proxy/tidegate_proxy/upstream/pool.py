"""A pool's replicas: found by name, chosen by load, left alone while they fail."""

import asyncio
import logging
import random
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tidegate_contracts import routing

from .breaker import Breaker
from .budget import RetryBudget
from .connection import Connection, connect

if TYPE_CHECKING:
    from ..calls.line import Lines
    from ..residency.holder import Holder

Address = tuple[int, tuple[Any, ...]]
"""Address family, and the socket address."""
Lookup = Callable[[str, int], Awaitable[Sequence[Address]]]
LOOKUP_SECONDS = 2.0
"""Seconds between two look-ups of a pool's name."""
MOST_IDLE = 256
"""Connections to one replica that are kept while nobody uses them."""
log = logging.getLogger(__name__)


async def lookup(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a name, as the system's resolver has them; none where the name is unknown."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return []
        raise
    return [(each[0], each[4]) for each in found]


def weight(replica: str, key: bytes) -> bytes:
    """Return how much a replica, by its name, attracts a key: the one with the most has it, at every proxy."""
    return blake2b(replica.encode() + b"\0" + key).digest()


class Replica:
    """One process of a pool."""

    __slots__ = (
        "_closed",
        "_double",
        "_idle",
        "address",
        "breaker",
        "failures",
        "family",
        "in_flight",
        "lines",
        "listed",
        "requests",
    )

    def __init__(self, family: int, address: tuple[Any, ...]) -> None:
        self.family = family
        self.address = address
        self.breaker = Breaker()
        self.in_flight = 0
        self.listed = True
        """Whether the pool's name still leads to it."""
        self.requests = 0
        self.failures = 0
        self.lines: Lines | None = None
        """Its gRPC connections, once there was a call."""
        self._closed = False
        self._idle: list[Connection] = []
        self._double: Replica | None = None

    @property
    def name(self) -> str:
        """Host and port, for people."""
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def double(self) -> "Replica":
        """The same process once more, with connections of its own: copies of requests take none of the callers'."""
        if self._double is None:
            self._double = Replica(self.family, self.address)
        return self._double

    def take(self, now: float) -> Connection | None:
        """Return a connection that waits for work, the most recently used first; None when there is none."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable(now):
                return connection
            connection.close()
        return None

    def give(self, connection: Connection, now: float) -> None:
        """Take a connection back that has done its work."""
        if len(self._idle) < MOST_IDLE and connection.alive and not self._closed:
            connection.idle_since = now
            self._idle.append(connection)
        else:
            connection.close()

    async def connect(self, seconds: float) -> Connection:
        """Return a new connection; raises OSError or TimeoutError."""
        return await connect(self.address, self.family, seconds)

    def close(self) -> None:
        """End the connections that nobody uses, and from now on each when its work is done."""
        self._closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        if self.lines is not None:
            self.lines.leave()
        if self._double is not None:
            self._double.close()


class Pool:
    """The replicas of one pool of a server.

    Its name is looked up every few seconds. A replica that its name no longer leads to is kept for as long as it
    answers: see `tidegate_contracts.routing.Pool.host`. It is used only while no listed one can be.
    """

    def __init__(self, server: str, pool: routing.Pool, find: Lookup = lookup) -> None:
        self.server = server
        self.told = pool
        self.replicas: list[Replica] = []
        self.retries = RetryBudget(time.monotonic())
        self.holder: Holder | None = None
        """Has the leases on its models, where they are loaded on demand."""
        self._find = find
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The pool's name within its server."""
        return self.told.name

    def start(self) -> None:
        """Begin to look replicas up."""
        if self.holder is not None:
            self.holder.start()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> None:
        """Look no more; requests in flight go on."""
        if self._task is not None:
            self._task.cancel()
        for replica in self.replicas:
            replica.close()

    def pick(self, now: float, tried: Sequence[Replica] = ()) -> Replica | None:
        """Return the less busy of two random replicas that can be used and were not tried yet; None without any.

        The power of two choices: Mitzenmacher, IEEE TPDS 12(10), 2001.
        """
        replicas = self.replicas
        if len(replicas) == 1 and not tried:
            only = replicas[0]
            return only if only.breaker.allows(now) else None
        able = [each for each in replicas if each not in tried and each.breaker.allows(now)]
        able = [each for each in able if each.listed] or able
        if len(able) < 2:
            return able[0] if able else None
        one, other = random.sample(able, 2)
        return one if one.in_flight <= other.in_flight else other

    def pick_for(self, key: bytes, now: float, tried: Sequence[Replica] = ()) -> Replica | None:
        """Return the replica that all requests with this key go to, for as long as the replicas stay.

        Rendezvous hashing: Thaler and Ravishankar, IEEE/ACM TON 6(1), 1998.
        """
        able = [each for each in self.replicas if each not in tried and each.breaker.allows(now)]
        able = [each for each in able if each.listed] or able
        return max(able, key=lambda each: weight(each.name, key), default=None)

    def retry_in(self, now: float) -> float:
        """Return the seconds after which a replica may be tried again; that of a look-up where there is none."""
        waits = [replica.breaker.opens_in(now) for replica in self.replicas]
        return min(waits) if waits else LOOKUP_SECONDS

    async def refresh(self) -> None:
        """Look the name up once."""
        try:
            found = {tuple(address): (family, address) for family, address in await self._lookup()}
        except OSError as error:
            log.warning("pool %s/%s: %s cannot be looked up: %s", self.server, self.name, self.told.host, error)
            return
        known = {replica.address: replica for replica in self.replicas}
        for address, (family, _) in found.items():
            if address not in known:
                known[address] = Replica(family, address)
        for address, replica in known.items():
            replica.listed = address in found
        gone = [replica for replica in known.values() if not replica.listed and not await self._answers(replica)]
        for replica in gone:
            replica.close()
        self.replicas = [replica for replica in known.values() if replica not in gone]
        if self.holder is not None:
            self.holder.follow()

    async def _lookup(self) -> Sequence[Address]:
        return await self._find(self.told.host, self.told.http_port)

    async def _answers(self, replica: Replica) -> bool:
        try:
            (await replica.connect(1.0)).close()
        except OSError:
            return False
        return True

    async def _follow(self) -> None:
        while True:
            started = time.monotonic()
            await self.refresh()
            await asyncio.sleep(max(0.1, LOOKUP_SECONDS - (time.monotonic() - started)))
