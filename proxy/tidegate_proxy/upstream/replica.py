"""One process of a pool: its address, its idle HTTP/1.1 connections, and its counters."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ..problems import Problem, ProblemType
from .breaker import FAILURES, Breaker, again_seconds
from .connection import Connection, connect

MOST_IDLE = 256  # Idle connections that are kept per replica.
FRESH_SECONDS = 0.2  # How long an idle connection is used without checking whether the replica has closed it.
LOOKUP_SECONDS = 2.0  # Time between two look-ups of a pool's DNS name.


@dataclass(slots=True, eq=False, repr=False)
class Replica:
    """Compared by identity: a process that restarts at the same address is another replica."""

    family: int
    address: tuple[Any, ...]
    breaker: Breaker = field(default_factory=Breaker)
    in_flight: int = 0
    listed: bool = True  # Whether the pool's DNS name still resolves to it.
    avoided_until: float = 0.0  # Monotonic seconds until which other replicas are preferred, because it lacks a model.
    untaken: dict[tuple[str, str], tuple[int, float, bool]] = field(default_factory=dict)
    """Rejected long bodies, by server and model.

    The size in bytes, the time (monotonic seconds), and whether the replica has accepted a shorter body since then.
    """
    _closed: bool = False
    _idle: list[Connection] = field(default_factory=list)
    _own: "Replica | None" = None
    _probes: set[asyncio.Timeout] = field(default_factory=set)
    _when_closed: list[Callable[[], None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Host and port."""
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def own_connections(self) -> "Replica":
        """The same replica with connections for the proxy's own requests, so that these use no caller's."""
        if self._own is None:
            self._own = Replica(self.family, self.address)
        return self._own

    def take(self, now: float) -> Connection | None:
        """Return the most recently used idle connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if (connection.alive and now - connection.idle_since < FRESH_SECONDS) or connection.usable():
                return connection
            connection.close()
        return None

    def give(self, connection: Connection, now: float) -> None:
        """Take back a connection after its request is complete."""
        if len(self._idle) < MOST_IDLE and connection.alive and not self._closed:
            connection.idle_since = now
            self._idle.append(connection)
        else:
            connection.close()

    async def connect(self, seconds: float) -> Connection:
        """Return a new connection. Raises OSError or TimeoutError."""
        return await connect(self, seconds)

    def when_closed(self, what: Callable[[], None]) -> None:
        """Call `what` when the replica is closed, or immediately if it is closed already."""
        if self._closed:
            what()
        else:
            self._when_closed.append(what)

    def close(self) -> None:
        """Close idle connections now, and the others when their requests are complete."""
        self._closed = True
        self._close_idle()
        for what in self._when_closed:
            what()
        self._when_closed.clear()
        if self._own is not None:
            self._own.close()

    @asynccontextmanager
    async def bounded(self, seconds: float) -> AsyncIterator[None]:
        """Limit a request of the proxy itself. Raises TimeoutError after `seconds`, or if the replica falls silent."""
        async with asyncio.timeout(seconds) as bound:
            self._probes.add(bound)
            try:
                yield
            finally:
                self._probes.discard(bound)

    def mark_unresponsive(self) -> None:
        """Cancel the proxy's own requests, and close idle connections, because the replica is silent."""
        for bound in [bound for bound in self._probes if not bound.expired()]:
            bound.reschedule(0.0)
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()


def no_replica(pool: str, replicas: Collection[Replica], now: float, away: float = 0.0) -> Problem:
    """Return the problem for a pool without a usable replica: the reason, and when to retry. `away` is for how many
    seconds there has been none. The proxy must look up the pool's name again at least."""
    why = next((each.breaker.why for each in replicas if each.breaker.failures >= FAILURES), "")
    what = f"can be used: {why}" if why else "accepts connections" if replicas else "exists"
    lookup = max(LOOKUP_SECONDS, again_seconds(away))
    retry_after = min((each.breaker.opens_in(now) for each in replicas), default=lookup)
    return Problem(ProblemType.BUSY, f"No replica of {pool} {what}.", max(0.1, retry_after), reason="no-replica")
