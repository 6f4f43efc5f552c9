"""A question of the proxy's own that one replica is asked again and again: one for all who want to know."""

import asyncio
import logging
from abc import ABC, abstractmethod
from random import uniform
from time import monotonic

from .replica import Replica
from .request import Answer, send

JITTER = 0.2  # A pause is so much shorter or longer: proxies that began together do not ask together.
TURNS = 9  # Pieces of the time that an answer may take.
log = logging.getLogger(__name__)


class PeriodicProbe(ABC):
    """Asked until the replica is closed, on connections that no caller's request waits for."""

    def __init__(self, replica: Replica, request: bytes) -> None:
        self._replica, self._request = replica, request
        self._asking: asyncio.Task[None] | None = None
        self._running = asyncio.get_running_loop().create_task(self._run())
        replica.when_closed(self._stop)

    @abstractmethod
    def _pause(self) -> float:
        """Return the seconds until it is asked again."""

    @abstractmethod
    async def _ask(self) -> None:
        """Ask, and take the answer."""

    async def ask(self, seconds: float | None = None) -> None:
        """Ask now, and wait for the answer, so many seconds at most; who comes meanwhile waits for the same one."""
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._once())
        asking = self._asking
        await asyncio.wait({asking}, timeout=seconds)
        if asking.done() and not asking.cancelled():  # as it is where the replica was closed meanwhile
            asking.result()

    async def _once(self) -> None:
        try:
            await self._ask()
        finally:
            self._asking = None

    def _stop(self) -> None:
        self._running.cancel()
        if self._asking is not None:
            self._asking.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause() * uniform(1 - JITTER, 1 + JITTER))
            try:
                await self.ask()
            except Exception:
                log.exception("asking %s met a defect", self._replica.name)

    async def _answer(self, seconds: float, *, discard: bool = False) -> Answer:
        """Return the answer, of which `discard` drops the body; raises OSError (TimeoutError) or NoAnswerError.

        The time passes in turns of the event loop: a proxy that gets no processor for a while has not read what its
        replicas have answered, and would find all of them silent at once.
        """
        asking = asyncio.get_running_loop().create_task(self._exchange(seconds, discard))
        try:
            for _ in range(TURNS):
                if (await asyncio.wait({asking}, timeout=seconds / TURNS))[0]:
                    return asking.result()
        finally:
            asking.cancel()
        raise TimeoutError

    async def _exchange(self, seconds: float, discard: bool) -> Answer:
        own = self._replica.own_connections
        connection = own.take(monotonic()) or await own.connect(seconds * TURNS)
        return await send(own, connection, self._request, discard=discard)
