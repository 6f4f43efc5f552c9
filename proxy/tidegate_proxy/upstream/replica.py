"""One process of a pool: where it listens, its kept HTTP/1.1 connections, and what is counted of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from .breaker import Breaker
from .connection import Connection, connect

MOST_IDLE = 256  # Idle connections to one replica that are kept.
FRESH_SECONDS = 0.2  # Seconds in which an idle connection is taken without a look whether the replica has closed it.
LOOKUP_SECONDS = 2.0  # Seconds between two look-ups of a pool's name.


def weight(replica: str, key: bytes) -> bytes:
    """Return the weight of a replica, by its name, for a key: the largest one wins, at every proxy.

    Rendezvous hashing: Thaler and Ravishankar, IEEE/ACM TON 6(1), 1998.
    """
    return blake2b(replica.encode() + b"\0" + key).digest()


@dataclass(slots=True, eq=False, repr=False)
class Replica:
    """Compared by identity: a process that comes back at the same address is another replica."""

    family: int
    address: tuple[Any, ...]
    breaker: Breaker = field(default_factory=Breaker)
    in_flight: int = 0
    listed: bool = True  # Whether the pool's name still resolves to it.
    _closed: bool = False
    _idle: list[Connection] = field(default_factory=list)
    _mirror: "Replica | None" = None
    _when_closed: list[Callable[[], None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Host and port, for people."""
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def mirror_connections(self) -> "Replica":
        """The same process with connections of its own, so that mirrored requests take none of the callers'."""
        if self._mirror is None:
            self._mirror = Replica(self.family, self.address)
        return self._mirror

    def take(self, now: float) -> Connection | None:
        """Return an idle connection, the most recently used first; None without any."""
        while self._idle:
            connection = self._idle.pop()
            if (connection.alive and now - connection.idle_since < FRESH_SECONDS) or connection.usable():
                return connection
            connection.close()
        return None

    def give(self, connection: Connection, now: float) -> None:
        """Take back a connection that has done its work."""
        if len(self._idle) < MOST_IDLE and connection.alive and not self._closed:
            connection.idle_since = now
            self._idle.append(connection)
        else:
            connection.close()

    async def connect(self, seconds: float) -> Connection:
        """Return a new connection; raises OSError or TimeoutError."""
        return await connect(self.address, self.family, seconds)

    def when_closed(self, what: Callable[[], None]) -> None:
        """Have something called when the replica is closed: at once if it is closed already."""
        if self._closed:
            what()
        else:
            self._when_closed.append(what)

    def close(self) -> None:
        """End the idle connections now, and each of the others when its work is done."""
        self._closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        for what in self._when_closed:
            what()
        self._when_closed.clear()
        if self._mirror is not None:
            self._mirror.close()


def retry_in(replicas: Iterable[Replica], now: float) -> float:
    """Return the seconds until one of these may be tried again; without any, until the pool's name is looked up."""
    return min((replica.breaker.opens_in(now) for replica in replicas), default=LOOKUP_SECONDS)
