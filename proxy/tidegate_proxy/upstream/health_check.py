"""Checks periodically whether a replica is alive. All calls of the replica share the checks."""

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic

from ..settings import Tunables
from .breaker import FAILURES
from .probe import PeriodicProbe
from .replica import Replica
from .request import NoAnswerError

ANSWER_SECONDS = 0.9
"""Timeout of a check. The proxy repeats an unanswered check immediately, so it detects a hung replica within 2.4 s."""
NO_ANSWER = "no response to health checks"
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # HTTP/2's (RFC 9113, 3.4).


class HealthCheck(PeriodicProbe):
    """Reports to a replica's breaker whether it is alive. Calls `changed` when the breaker has opened or closed."""

    def __init__(
        self, replica: Replica, path: bytes, host: str, changed: Callable[[Replica], None], grpc_port: int | None,
        tunables: Tunables,
    ) -> None:  # fmt: skip
        """Start the checks, which run until the replica is closed. A live replica answers `path` with 200.

        `grpc_port` speaks HTTP/2 without TLS. A server has few HTTP threads, and all of them can be busy reading long
        bodies. Such a server fails the check but still responds at `grpc_port`, so its calls continue. This excuse is
        limited in time, and needs a successful check first, because the gRPC threads prove nothing about those of HTTP.
        """
        super().__init__(replica, b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n" % (path, host.encode()))
        self._changed = changed
        self._tunables = tunables
        self._grpc_port = grpc_port
        self._answered_at = -inf
        self._reported = True, False

    def _pause(self) -> float:
        return self._tunables.check_seconds

    async def _probe(self) -> None:
        breaker = self._replica.breaker
        if why := await self._why_silent():
            breaker.unanswered(monotonic(), why)
            if not breaker.is_unresponsive():
                why, greets = await asyncio.gather(self._why_silent(), self._grpc_port_answers())
                if why == NO_ANSWER and greets and monotonic() - self._answered_at < self._tunables.excused_seconds:
                    why = ""
                elif why:
                    breaker.unanswered(monotonic(), why)
        if not why:
            breaker.answered(monotonic())
        if (now := (breaker.failures < FAILURES, breaker.is_unresponsive())) != self._reported:
            self._reported = now
            self._changed(self._replica)

    async def _why_silent(self) -> str:
        """Return why the check failed, or an empty string."""
        try:
            status = (await self._answer(ANSWER_SECONDS, discard=True)).status
        except TimeoutError:
            return NO_ANSWER
        except ConnectionRefusedError:
            return "connections are refused"
        except (OSError, NoAnswerError) as error:
            return str(error.strerror if isinstance(error, OSError) and error.strerror else error)
        self._answered_at = monotonic()
        return "" if status == 200 else f"the health check returned HTTP {status}"

    async def _grpc_port_answers(self) -> bool:
        if self._grpc_port is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(self._replica.address[0], self._grpc_port)
                try:
                    writer.write(_GREETING)
                    return bool(await reader.read(1))
                finally:
                    writer.close()
        except OSError:
            return False
