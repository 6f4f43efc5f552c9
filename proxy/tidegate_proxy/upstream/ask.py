"""A small question to a replica, with a small answer: what the proxy itself wants to know."""

import asyncio
from dataclasses import dataclass
from time import monotonic

from ..problems import Kind, Problem
from .connection import Connection
from .pool import Pool, Replica

MOST_BYTES = 64 * 1024 * 1024


@dataclass
class Answer:
    """Status, type and body."""

    status: int = 0
    media_type: str = "application/octet-stream"
    body: bytes = b""


class NoAnswerError(Exception):
    """Says why there was no whole answer."""


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


async def converse(replica: Replica, connection: Connection, data: bytes) -> Answer:
    """Send a whole request over a connection of `replica`'s, and return the answer; raises NoAnswerError."""
    receiver = _Receiver()
    try:
        connection.receiver = receiver
        connection.transport.write(data)
        reason = await receiver.done
    except BaseException:
        connection.close()
        raise
    if reason:
        connection.close()
        raise NoAnswerError(reason)
    connection.receiver = None
    if connection.keep:
        replica.give(connection, monotonic())
    else:
        connection.close()
    return receiver.answer


async def ask(pool: Pool, path: bytes, seconds: float, at: Replica | None = None, *, own_bound: bool = True) -> Answer:
    """Return what a replica answers to GET, `at` this one if it is told; raises Problem without one in `seconds`.

    That there is none in time is the replica's failure only where that time is the proxy's `own_bound`, and not less
    because a caller waits no longer.
    """
    now = monotonic()
    replica = pool.pick(now) if at is None else at
    where = f"{pool.server}/{pool.name}"
    if replica is None:
        raise Problem(Kind.BUSY, f"No replica of {where} is there.", pool.retry_in(now))
    trial = replica.breaker.claim(now)
    try:
        async with asyncio.timeout(seconds):
            connection = replica.take(monotonic()) or await replica.connect(seconds)
            head = b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n" % (path, pool.told.host.encode())
            answer = await converse(replica, connection, head)
    except OSError as error:
        if isinstance(error, TimeoutError) and not own_bound:
            raise Problem(Kind.DEADLINE, "There was no answer in time.") from None
        replica.breaker.failed(monotonic(), trial)
        raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: {type(error).__name__}.") from None
    except NoAnswerError as error:
        replica.breaker.failed(monotonic(), trial)
        raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: {error}.") from None
    else:
        replica.breaker.succeeded(trial)
    finally:
        if trial is not None:
            trial.given_up()  # unless it told something
    return answer
