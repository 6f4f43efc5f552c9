"""Asks a replica whether it is alive, again and again: one question for all who want to know, call or no call."""

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic

from .breaker import FAILURES
from .question import PeriodicProbe
from .replica import Replica
from .request import NoAnswerError

CHECK_SECONDS = 0.5  # Seconds between two checks.
ANSWER_SECONDS = 0.9
"""Seconds that an answer may take. A missing one is asked for again at once, so that a replica that hangs is found out
within 2.4 s."""
EXCUSED_SECONDS = 10.0  # For which one that greets may leave all of them unanswered.
NO_ANSWER = "there is no answer"
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # HTTP/2's, RFC 9113, 3.4.


class HealthCheck(PeriodicProbe):
    """Tells the breaker of a replica whether that is alive, and `changed` when the breaker has opened or closed."""

    def __init__(
        self, replica: Replica, path: bytes, host: str, changed: Callable[[Replica], None], grpc_port: int | None = None
    ) -> None:
        """Ask from now on, until the replica is closed; `path` is where it answers 200 while it is alive.

        `grpc_port` is where it speaks HTTP/2 without TLS. A server has few threads for HTTP, which may all be reading
        long bodies: one that gives no answer there and greets here is busy, and its calls are answered in their time.
        It is believed for a while only, and not before its first answer: other threads greet, which tell nothing of
        those for HTTP.
        """
        super().__init__(replica, b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n" % (path, host.encode()))
        self._changed = changed
        self._grpc_port = grpc_port
        self._answered_at = -inf
        self._told = True, False

    def _pause(self) -> float:
        return CHECK_SECONDS

    async def _ask(self) -> None:
        breaker = self._replica.breaker
        if why := await self._why_silent():
            breaker.unanswered(monotonic(), why)
            if not breaker.is_unresponsive():
                why, greets = await asyncio.gather(self._why_silent(), self._grpc_port_answers())
                if why == NO_ANSWER and greets and monotonic() - self._answered_at < EXCUSED_SECONDS:
                    why = ""
                elif why:
                    breaker.unanswered(monotonic(), why)
        if not why:
            breaker.answered(monotonic())
        if (now := (breaker.failures < FAILURES, breaker.is_unresponsive())) != self._told:
            self._told = now
            self._changed(self._replica)

    async def _why_silent(self) -> str:
        """Return why it does not answer that it is alive, or nothing."""
        try:
            status = (await self._answer(ANSWER_SECONDS, discard=True)).status
        except TimeoutError:
            return NO_ANSWER
        except ConnectionRefusedError:
            return "connections are refused"
        except (OSError, NoAnswerError) as error:
            return str(error.strerror if isinstance(error, OSError) and error.strerror else error)
        self._answered_at = monotonic()
        return "" if status == 200 else f"asked whether it is alive, it answers {status}"

    async def _grpc_port_answers(self) -> bool:
        """Tell whether it says anything at its port for gRPC."""
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
