"""One process of a pool: where it listens, its kept HTTP/1.1 connections, and what is counted of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ..problems import Problem, ProblemType
from .breaker import FAILURES, Breaker, again_seconds
from .connection import Connection, connect

MOST_IDLE = 256  # Idle connections to one replica that are kept.
FRESH_SECONDS = 0.2  # Seconds in which an idle connection is taken without a look whether the replica has closed it.
LOOKUP_SECONDS = 2.0  # Seconds between two look-ups of a pool's name.


@dataclass(slots=True, eq=False, repr=False)
class Replica:
    """Compared by identity: a process that comes back at the same address is another replica."""

    family: int
    address: tuple[Any, ...]
    breaker: Breaker = field(default_factory=Breaker)
    in_flight: int = 0
    listed: bool = True  # Whether the pool's name still resolves to it.
    avoided_until: float = 0.0  # Monotonic seconds until which others are preferred: it said that it lacks a model.
    untaken: dict[tuple[str, str], tuple[int, bool]] = field(default_factory=dict)
    """By server and model: bytes of a long body that it did not take, and whether it has answered a shorter one since,
    so that the length is why."""
    _closed: bool = False
    _idle: list[Connection] = field(default_factory=list)
    _own: "Replica | None" = None
    _questions: set[asyncio.Timeout] = field(default_factory=set)
    _when_closed: list[Callable[[], None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Host and port, for people."""
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def own_connections(self) -> "Replica":
        """The same process with the proxy's own connections: health checks take no callers'."""
        if self._own is None:
            self._own = Replica(self.family, self.address)
        return self._own

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
        return await connect(self, seconds)

    def when_closed(self, what: Callable[[], None]) -> None:
        """Have something called when the replica is closed: at once if it is closed already."""
        if self._closed:
            what()
        else:
            self._when_closed.append(what)

    def close(self) -> None:
        """End the idle connections now, and each of the others when its work is done."""
        self._closed = True
        self._close_idle()
        for what in self._when_closed:
            what()
        self._when_closed.clear()
        if self._own is not None:
            self._own.close()

    @asynccontextmanager
    async def bounded(self, seconds: float) -> AsyncIterator[None]:
        """Bound a question of the proxy's own: TimeoutError after so many seconds, or when the replica falls silent."""
        async with asyncio.timeout(seconds) as bound:
            self._questions.add(bound)
            try:
                yield
            finally:
                self._questions.discard(bound)

    def mark_unresponsive(self) -> None:
        """Let the proxy's own questions wait no longer, nor requests begin on connections of before."""
        for bound in [bound for bound in self._questions if not bound.expired()]:
            bound.reschedule(0.0)
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()


def no_replica(pool: str, replicas: Collection[Replica], now: float, away: float = 0.0) -> Problem:
    """Return what a call is told that none of a pool's replicas can take: why, and when one of them may.

    `away` is for how many seconds there has been none: at the least, its name has to be looked up again.
    """
    why = next((each.breaker.why for each in replicas if each.breaker.failures >= FAILURES), "")
    what = f"can be used: {why}" if why else "takes connections" if replicas else "is there"
    looked_up = max(LOOKUP_SECONDS, again_seconds(away))
    retry_after = min((each.breaker.opens_in(now) for each in replicas), default=looked_up)
    return Problem(ProblemType.BUSY, f"No replica of {pool} {what}.", max(0.1, retry_after), reason="no-replica")
