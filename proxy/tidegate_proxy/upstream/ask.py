"""A small question to a replica, with a small answer: what the proxy itself wants to know."""

import asyncio
from dataclasses import dataclass
from time import monotonic

from ..problems import Kind, Problem
from .pool import Pool

MOST_BYTES = 64 * 1024 * 1024


@dataclass
class Answer:
    """Status, type and body."""

    status: int = 0
    media_type: str = "application/octet-stream"
    body: bytes = b""


class _Receiver:
    def __init__(self) -> None:
        self.answer = Answer()
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        del length
        self.answer.status = status
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b": ")
            if name.lower() == b"content-type":
                self.answer.media_type = value.decode("latin-1")

    def answer_data(self, data: bytes) -> None:
        self.answer.body += data
        if len(self.answer.body) > MOST_BYTES:
            self._end("its answer is too long")

    def answer_ended(self) -> None:
        self._end("")

    def answer_failed(self, reason: str) -> None:
        self._end(reason)

    def flush_answer(self) -> None:
        """Do nothing: all of it is gathered."""

    def sending_paused(self, paused: bool) -> None:
        """Do nothing: a question is short."""

    def _end(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_result(reason)


async def ask(pool: Pool, path: bytes, seconds: float) -> Answer:
    """Return what a replica answers to GET; raises Problem when none does within `seconds`."""
    replica = pool.pick(monotonic())
    where = f"{pool.server}/{pool.name}"
    if replica is None:
        raise Problem(Kind.BUSY, f"No replica of {where} is there.", pool.retry_in(monotonic()))
    receiver = _Receiver()
    try:
        async with asyncio.timeout(seconds):
            connection = replica.take(monotonic()) or await replica.connect(seconds)
            try:
                connection.receiver = receiver
                head = b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n" % (path, pool.told.host.encode())
                connection.transport.write(head)
                reason = await receiver.done
            except BaseException:
                connection.close()
                raise
    except OSError as error:
        replica.breaker.failed(monotonic())
        raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: {type(error).__name__}.") from None
    if reason:
        connection.close()
        replica.breaker.failed(monotonic())
        raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: {reason}.")
    connection.receiver = None
    if connection.keep:
        replica.give(connection, monotonic())
    else:
        connection.close()
    replica.breaker.succeeded()
    return receiver.answer
