"""One complete HTTP/1.1 request of the proxy itself over a replica's connection, and its response."""

import asyncio
from dataclasses import dataclass
from time import monotonic

from .connection import Connection
from .replica import Replica

MOST_BYTES = 64 * 1024 * 1024  # Bytes of a response.


@dataclass
class Answer:
    """A response's status, media type and body."""

    status: int = 0
    media_type: str = "application/octet-stream"
    body: bytes = b""


class NoAnswerError(Exception):
    """There was no complete response. The text gives the reason."""


class _Receiver:
    """Collects a response. `discard`: drop its body."""

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
        if self._discard or self.done.done():  # a body above the limit arrives until the connection is closed
            return
        self.parts.append(data)
        self._size += len(data)
        if self._size > self._most:
            self.answer_failed("its response is too long")

    def answer_ended(self) -> None:
        self.answer_failed("")

    def answer_came(self, status: int, head: bytes, length: int, data: bytes) -> None:
        self.answer_began(status, head, length)
        self.answer_data(data)
        self.answer_ended()

    def answer_failed(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_result(reason)

    def answer_broke(self, error: Exception) -> None:
        self.answer_failed(f"it cannot be read ({type(error).__name__})")

    def flush_answer(self) -> None:
        """Do nothing: nothing is sent on."""

    def sending_paused(self, paused: bool) -> None:
        """Do nothing: requests are short enough to wait in the transport."""


async def send(
    replica: Replica, connection: Connection, *parts: bytes, discard: bool = False, most: int = MOST_BYTES
) -> Answer:
    """Send a request over a connection of `replica`, and return its response. Raises NoAnswerError. The connection goes
    back to the replica, or is closed. `discard`: drop the response's body. `most`: the limit of the body in bytes."""
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
