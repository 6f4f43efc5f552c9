"""Mirrors a share of the requests to a candidate version: bounded, in the background, its answers dropped.

A mirrored request takes none of the callers' places, limits, connections or deadlines. It never opens or closes a
replica's circuit breaker: a candidate that fails says nothing about the versions beside it, and a replica that fails
gets no mirrored requests.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import random
from time import monotonic
from typing import Literal

from .memory import Budget
from .routes import Route
from .telemetry.meter import Meter
from .upstream.replica import Replica
from .upstream.request import NoAnswerError, send

Outcome = Literal["answered", "refused", "failed", "late", "incomplete", "too-large", "too-many", "sequence", "nowhere"]
"""Answered, or with an error (refused); no answer, or none in time; not sent, for one of several reasons."""
Send = Callable[[Replica, bytes], Awaitable[Outcome]]  # Sends a whole request to a replica, and reads the answer.

MOST_BYTES = 1024 * 1024  # Bytes of one request that is mirrored.
MOST_OF_BUDGET = 8  # All of them hold at most an eighth of what callers may make the proxy hold.
MOST_COPIES = 64  # Mirrored requests in flight.
MOST_OF_A_MODEL = 16  # The same of one model, so that one dead candidate does not keep the others from theirs.
log = logging.getLogger(__name__)


@dataclass(eq=False)
class MirroredRequest:
    """A copy of one request: kept while the request goes by, and sent when it is whole."""

    _mirror: "Mirror"
    _route: Route
    _sequence: bool | None
    _send: Send

    def __post_init__(self) -> None:
        self._parts: list[bytes | bytearray | memoryview] = []
        self._size = 0
        self._whole: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()

    def add(self, data: bytes | bytearray | memoryview, whole: bool) -> None:
        """Keep a part of the request."""
        if self._whole.done():
            return
        if self._size + len(data) > MOST_BYTES:
            self._drop("too-large")
        elif not self._mirror.take(len(data)):
            self._drop("too-many")
        else:
            self._size += len(data)
            self._parts.append(data)
            if whole:
                self._whole.set_result(None)

    def _drop(self, why: Outcome) -> None:
        self._parts.clear()
        self._whole.set_result(why)

    async def run(self) -> None:
        """Wait until it is whole, and send it."""
        outcome: Outcome = "failed"
        try:
            async with asyncio.timeout(self._mirror.seconds):
                outcome = await self._whole or await self._deliver()
        except TimeoutError:
            outcome = "late" if self._whole.done() and not self._whole.cancelled() else "incomplete"
        except OSError:
            pass  # it is counted, and nothing waits for it
        except Exception:
            log.exception("a mirrored request for %s/%s met a defect", self._route.server, self._route.name)
        finally:
            self._parts.clear()
            self._route.copies -= 1
            self._mirror.budget.take(self._mirror, -self._size)
            self._mirror.count(self._route, outcome)

    async def _deliver(self) -> Outcome:
        if self._sequence is None:
            self._sequence = await self._route.sequences.find(self._mirror.connect_seconds)
        if self._sequence is not False:
            return "nowhere" if self._sequence is None else "sequence"
        now = asyncio.get_running_loop().time()
        pool = self._route.pool_of(self._route.candidate)
        lease = None if pool.leases is None else pool.leases.find(self._route.name, now)
        free = pool.pick(now) if pool.leases is None else None
        replica = lease.replica if lease is not None else free
        if replica is None or replica.breaker.state(now) != "closed":
            return "nowhere"
        if lease is None:
            return await self._send(replica.own_connections, b"".join(self._parts))
        lease.in_flight += 1  # the model stays for it, but does not count as used
        try:
            return await self._send(replica.own_connections, b"".join(self._parts))
        finally:
            lease.in_flight -= 1


class Mirror:
    """All mirrored requests of a proxy; `seconds` is how long one may take, from its first part to the answer's end.

    What they hold is counted as if they were one more caller's.
    """

    def __init__(self, meter: Meter, budget: Budget, seconds: float, connect_seconds: float) -> None:
        self.seconds, self.connect_seconds = seconds, connect_seconds
        self.budget = budget
        self.held = 0  # Bytes of those in flight.
        self._meter = meter
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """How many mirrored requests are in flight."""
        return len(self._tasks)

    def begin(self, route: Route, version: str | None, sequence: bool | None, send: Send) -> MirroredRequest | None:
        """Begin to mirror a request that `version` serves, if it is one of the share; return None otherwise.

        Requests of a sequence are left out, for a part of a sequence is no sequence; None: its model is asked.
        """
        if route.mirror is None or version == route.candidate or random() * 100 >= route.mirror.percent:
            return None
        if sequence:
            self.count(route, "sequence")
            return None
        if len(self._tasks) >= MOST_COPIES or route.copies >= MOST_OF_A_MODEL:
            self.count(route, "too-many")
            return None
        route.copies += 1
        copy = MirroredRequest(self, route, sequence, send)
        task = asyncio.get_running_loop().create_task(copy.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return copy

    def take(self, size: int) -> bool:
        """Take bytes for a copy; return whether there were any."""
        is_room = self.held + size <= self.budget.limit // MOST_OF_BUDGET
        return is_room and self.budget.take(self, size)

    def count(self, route: Route, outcome: Outcome) -> None:
        """Count what became of one."""
        self._meter.mirrored[*self._meter.named(route.server, route.name), outcome] += 1

    def stop(self) -> None:
        """Drop all mirrored requests."""
        for task in list(self._tasks):
            task.cancel()


async def over_http(connect_seconds: float, first: bytes, skip: int, replica: Replica, data: bytes) -> Outcome:
    """Send a request to the candidate: with these first lines instead of its own, of `skip` bytes; raises OSError."""
    connection = replica.take(monotonic()) or await replica.connect(connect_seconds)
    try:
        answer = await send(replica, connection, first, data[skip:], discard=True)
    except NoAnswerError:
        return "failed"
    return "answered" if answer.status < 400 else "refused"
