"""A periodic request of the proxy to one replica. Everything that needs the result shares it."""

import asyncio
import logging
from abc import ABC, abstractmethod
from random import uniform
from time import monotonic

from .replica import Replica
from .request import Answer, send

JITTER = 0.2  # Relative variation of a pause, so that proxies that started together do not send together.
TURNS = 9  # Parts into which a timeout is divided.
log = logging.getLogger(__name__)


class PeriodicProbe(ABC):
    """A request that is repeated until the replica is closed, on connections that no caller's request needs."""

    def __init__(self, replica: Replica, request: bytes) -> None:
        self._replica, self._request = replica, request
        self._probing: asyncio.Task[None] | None = None
        self._running = asyncio.get_running_loop().create_task(self._run())
        replica.when_closed(self._stop)

    @abstractmethod
    def _pause(self) -> float:
        """Return the seconds until the next request."""

    @abstractmethod
    async def _probe(self) -> None:
        """Send the request, and process the response."""

    async def ask(self, seconds: float | None = None) -> None:
        """Probe now, and wait at most `seconds` for the result. Simultaneous callers share one request."""
        if self._probing is None:
            self._probing = asyncio.get_running_loop().create_task(self._once())
        probing = self._probing
        await asyncio.wait({probing}, timeout=seconds)
        if probing.done() and not probing.cancelled():  # it is cancelled if the replica was closed meanwhile
            probing.result()

    async def _once(self) -> None:
        try:
            await self._probe()
        finally:
            self._probing = None

    def _stop(self) -> None:
        self._running.cancel()
        if self._probing is not None:
            self._probing.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause() * uniform(1 - JITTER, 1 + JITTER))
            try:
                await self.ask()
            except Exception:
                log.exception("probing %s failed with an internal error", self._replica.name)

    async def _answer(self, seconds: float, *, discard: bool = False) -> Answer:
        """Return the response. `discard`: drop its body. Raises OSError (TimeoutError) or NoAnswerError. The timeout
        counts turns of the event loop, so that a proxy without CPU time does not treat all replicas as silent."""
        exchange = asyncio.get_running_loop().create_task(self._exchange(seconds, discard))
        try:
            for _ in range(TURNS):
                if (await asyncio.wait({exchange}, timeout=seconds / TURNS))[0]:
                    return exchange.result()
        finally:
            exchange.cancel()
        raise TimeoutError

    async def _exchange(self, seconds: float, discard: bool) -> Answer:
        own = self._replica.own_connections
        connection = own.take(monotonic()) or await own.connect(seconds * TURNS)
        return await send(own, connection, self._request, discard=discard)
