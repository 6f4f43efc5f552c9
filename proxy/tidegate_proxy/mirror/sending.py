"""How a copy goes to a replica, over HTTP and over gRPC, on connections that no caller's request takes."""

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from ..calls.frames import CANCEL
from ..calls.protobuf import text
from ..calls.stream import Stream
from ..upstream.pool import Pool, Replica
from .copies import Outcome

if TYPE_CHECKING:
    from ..calls.heads import AnswerHead
    from ..calls.switchboard import Switchboard

_VERSION_FIELD = 2
"""`model_version` of ModelInferRequest."""


class _Dropped:
    """Reads an answer, and keeps no more of it than how it went."""

    def __init__(self) -> None:
        self.status = 0
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        del head, length
        self.status = status

    def answer_data(self, data: bytes) -> None:
        """Drop it."""

    def answer_ended(self) -> None:
        self._end(True)

    def answer_failed(self, _: str) -> None:
        self._end(False)

    def flush_answer(self) -> None:
        """Do nothing: nobody waits."""

    def sending_paused(self, paused: bool) -> None:
        """Do nothing: a copy is bounded, and all of it is there."""

    def _end(self, whole: bool) -> None:
        if not self.done.done():
            self.done.set_result(whole)


async def over_http(connect_seconds: float, first: bytes, double: Replica, rest: bytes) -> Outcome:
    """Send a request whose first lines are those that ask for the candidate; raises OSError."""
    connection = double.take(monotonic()) or await double.connect(connect_seconds)
    receiver = connection.receiver = _Dropped()
    try:
        connection.transport.writelines((first, rest))
        whole = await receiver.done
    except BaseException:
        connection.close()
        raise
    if not whole:
        return "failed"
    connection.receiver = None
    if connection.keep:
        double.give(connection, monotonic())
    else:
        connection.close()
    return "answered" if receiver.status < 400 else "refused"


class _DroppedCall(Stream):
    """The same over gRPC."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def take_head(self, head: "AnswerHead", end: bool) -> None:
        if end:
            self._end("refused" if head.grpc_status else "answered")

    def take_data(self, data: bytes, end: bool) -> None:
        self.link.credit(self, len(data))
        if end:
            self._end("failed")

    def take_reset(self, _code: int | None, _processed: bool) -> None:
        self._end("failed")

    def _end(self, outcome: Outcome) -> None:
        if not self.done.done():
            self.done.set_result(outcome)


async def over_grpc(
    board: "Switchboard", pool: Pool, headers: bytes, version: str, double: Replica, message: bytes
) -> Outcome:
    """Send a message that asks for the candidate; raises OSError."""
    line = await board.lines(pool, double).connect(board.shared.settings.connect_timeout_seconds)
    stream = _DroppedCall()
    # Of a field that is said twice, the last counts (protobuf, "Last One Wins").
    field = text(_VERSION_FIELD, version.encode())
    length = len(message) - 5 + len(field)
    line.open(stream, headers)
    line.send_data(stream, b"".join((b"\0", length.to_bytes(4), message[5:], field)), True)
    try:
        return await stream.done
    except asyncio.CancelledError:
        line.reset(stream.number, CANCEL)
        raise
