"""The calls that the proxy answers itself: of servers, and grpc.health.v1."""

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from ..problems import TWO_CREDENTIALS, Kind, Problem
from ..request_ids import new_request_id
from .heads import RequestHead, literal
from .methods import HEALTH, SERVICE, Own
from .problems import OK_HEAD, plain_trailers, trailers
from .protobuf import MalformedError, framed, integer, last, text
from .stream import Stream
from .unary import TimeLimit, UpstreamStatusError

if TYPE_CHECKING:
    from .switchboard import Switchboard

MOST_BYTES = 64 * 1024
(SERVING, NOT_SERVING, SERVICE_UNKNOWN) = range(1, 4)


class Answer(Stream):
    """One such call."""

    done = False
    _task: asyncio.Task[None] | None = None
    _said: int | None = None

    def __init__(self, board: "Switchboard", head: RequestHead, method: Own, started: float) -> None:
        self.board = board
        self.head = head
        self.method = method
        self.request_id = head.request_id or new_request_id()
        most = float(board.shared.settings.request_timeout_seconds)
        self._own_bound = head.seconds is None or head.seconds >= most
        self.deadline = started + (most if head.seconds is None else min(most, head.seconds))
        self._message = b""

    def begin(self, end: bool) -> None:
        """Wait for the message."""
        self.board.shared.open_calls.add(self)
        if self.head.credentials > 1:
            self._fail(Problem(Kind.MALFORMED, TWO_CREDENTIALS))
        elif end:
            self.take_data(b"", True)

    def take_data(self, data: bytes, end: bool) -> None:
        """Take a part of the message, and answer when it is whole."""
        if self.done or self._task is not None:
            return
        self._message += data
        if len(self._message) > MOST_BYTES:
            self._fail(Problem(Kind.TOO_LONG, f"A message may have {MOST_BYTES} bytes here."))
        elif end:
            self._task = self.link.loop.create_task(self._answer())

    def take_head(self, _: RequestHead, end: bool) -> None:
        """Take what follows the message: callers have nothing to say there."""
        if end:
            self.take_data(b"", True)

    def take_reset(self, _code: int | None, _processed: bool) -> None:
        """End it: the caller has left."""
        if self._task is not None:
            self._task.cancel()
        self._finish()

    def expire(self) -> None:
        """End it: its time is up."""
        if self._task is not None:
            self._task.cancel()
        self._fail(Problem(Kind.DEADLINE, "There was no answer in time."))

    def leave(self) -> None:
        """End it: the proxy is stopping."""
        self._fail(Problem(Kind.BUSY, "The proxy is stopping.", 0.0))

    def health_changed(self) -> None:
        """Tell who watches."""
        try:
            status = self.board.health(self._service())
        except Problem:
            status = SERVICE_UNKNOWN
        if status != self._said:
            self._said = status
            self.link.send_data(self, framed(integer(1, status)))

    async def _answer(self) -> None:
        try:
            message = self._message
            if len(message) < 5 or message[0] or len(message) != 5 + int.from_bytes(message[1:5]):
                raise Problem(Kind.MALFORMED, "The request is one message that is not compressed.")
            if self.method == "Watch":
                self._watch()
                return
            self._send(await self._found())
        except Problem as problem:
            self._fail(problem)
        except UpstreamStatusError as told:
            self._end(OK_HEAD + told.block + self._id())
        except MalformedError as error:
            self._fail(Problem(Kind.MALFORMED, f"The message is no protobuf: {error}."))
        except Exception:
            self.board.logger.exception("request %s met a defect", self.request_id.decode())
            self._fail(Problem(Kind.INTERNAL, "It is in the log, under this request's id."))

    async def _found(self) -> bytes:
        questions, credential = self.board.questions, self.head.credential
        if self.method == "Check":
            return framed(integer(1, self.board.health(self._service())))
        if self.method == "List":
            status = integer(1, self.board.health(""))
            return framed(b"".join(text(1, text(1, name.encode()) + text(2, status)) for name in ("", SERVICE, HEALTH)))
        server = self.board.server_of(self.head)
        if self.method == "ServerLive":
            return await questions.live(credential, server)
        if self.method == "ServerReady":
            return await questions.ready(credential, server)
        return await questions.metadata(credential, server, TimeLimit(self.deadline - monotonic(), self._own_bound))

    def _service(self) -> str:
        return (last(self._message[5:], 1) or b"").decode(errors="replace")

    def _watch(self) -> None:
        self.board.shared.open_calls.discard(self)
        self.board.watchers.add(self)
        self.link.send_head(self, OK_HEAD + self._id())
        self.health_changed()

    def _send(self, message: bytes) -> None:
        self.link.send_head(self, OK_HEAD + self._id())
        self.link.send_data(self, message)
        self._end(plain_trailers(0))

    def _fail(self, problem: Problem) -> None:
        if not self.done:
            self.board.shared.meter.problems[problem.kind.word] += 1
            self._end(trailers(problem) if self._said else OK_HEAD + trailers(problem) + self._id())

    def _end(self, block: bytes) -> None:
        if not self.done:
            self.link.send_head(self, block, True)
            self._finish()

    def _id(self) -> bytes:
        return literal(b"x-request-id", self.request_id)

    def _finish(self) -> None:
        self.done = True
        self.board.shared.open_calls.discard(self)
        self.board.watchers.discard(self)
