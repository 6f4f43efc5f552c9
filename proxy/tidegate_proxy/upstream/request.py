"""One whole HTTP/1.1 request over a connection of a replica, and its whole answer: what the proxy asks for itself."""

import asyncio
from dataclasses import dataclass
from time import monotonic

from .connection import Connection
from .replica import Replica

MOST_BYTES = 64 * 1024 * 1024  # Bytes of an answer.


@dataclass
class Answer:
    """Status, media type and body."""

    status: int = 0
    media_type: str = "application/octet-stream"
    body: bytes = b""


class NoAnswerError(Exception):
    """Says why there was no whole answer."""


class _Receiver:
    """Gathers an answer; `discard` drops its body as it comes."""

    def __init__(self, discard: bool, most: int) -> None:
        self.answer = Answer()
        self.parts: list[bytes] = []
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._discard = discard
        self._most = most
        self._size = 0

    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        del length
        self.answer.status = status
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b": ")
            if name.lower() == b"content-type":
                self.answer.media_type = value.decode("latin-1")

    def answer_data(self, data: bytes) -> None:
        if self._discard or self.done.done():  # what is too long comes until the connection is closed
            return
        self.parts.append(data)
        self._size += len(data)
        if self._size > self._most:
            self.answer_failed("its answer is too long")

    def answer_ended(self) -> None:
        self.answer_failed("")

    def answer_came(self, status: int, head: bytes, length: int, data: bytes) -> None:
        self.answer_began(status, head, length)
        self.answer_data(data)
        self.answer_ended()

    def answer_failed(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_result(reason)

    def flush_answer(self) -> None:
        """Nothing is sent on before it is whole."""

    def sending_paused(self, paused: bool) -> None:
        """What is sent is short, and waits in the transport."""


async def send(
    replica: Replica, connection: Connection, *parts: bytes, discard: bool = False, most: int = MOST_BYTES
) -> Answer:
    """Send a request over a connection of `replica`, and return its answer; raises NoAnswerError.

    The connection goes back to the replica, or is closed. `discard`: the answer's body is not kept; `most`: so many
    bytes it has at most.
    """
    receiver = _Receiver(discard, most)
    try:
        connection.receiver = receiver
        connection.transport.writelines(parts)
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
    receiver.answer.body = b"".join(receiver.parts)
    return receiver.answer
