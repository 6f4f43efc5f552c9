"""Whole calls of the proxy's own: one message to a replica, and its one answer."""

import asyncio
from dataclasses import dataclass
from time import monotonic

from ..mirror import Outcome
from ..pools import Pool
from ..problems import Kind, Problem
from ..upstream.replica import Replica
from .frames import CANCEL
from .heads import AnswerHead, literal
from .line import Line
from .protobuf import framed, text
from .stream import Stream
from .upstreams import Upstreams

MOST_BYTES = 64 * 1024 * 1024
"""Bytes of an answer."""
CALL_HEADERS = literal(b"te", b"trailers") + literal(b"content-type", b"application/grpc")
"""Headers of every call."""
_VERSION_FIELD = 2
"""`model_version` of ModelInferRequest."""


class UpstreamStatusError(Exception):
    """A replica answered with a gRPC status of its own, which goes to the caller as it is."""

    def __init__(self, block: bytes, code: int) -> None:
        super().__init__(f"status {code}")
        self.block = block
        self.code = code


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How long an answer may take."""

    seconds: float
    own: bool
    """Whether it is the proxy's own limit: a caller's shorter one makes no answer the replica's failure."""


class _UnaryCall(Stream):
    """Gathers an answer; `discard` drops its messages as they come."""

    def __init__(self, discard: bool = False) -> None:
        self.messages = bytearray()
        self._discard = discard
        self._done: asyncio.Future[AnswerHead | None] = asyncio.get_running_loop().create_future()

    async def send(self, line: Line, headers: bytes, message: bytes) -> AnswerHead | None:
        """Make the call, and return what ended the answer: None where that was no status."""
        line.open(self, headers)
        line.send_data(self, message, True)
        try:
            return await self._done
        finally:
            if not self.remote_closed:
                line.reset(self.number, CANCEL)

    def take_head(self, head: AnswerHead, end: bool) -> None:
        if end or head.status not in (0, 200):
            self._end(head)

    def take_data(self, data: bytes, end: bool) -> None:
        if not self._discard:
            self.messages += data
        self.link.credit(self, len(data))
        if end or len(self.messages) > MOST_BYTES:
            self._end(None)

    def take_reset(self, _code: int | None, _processed: bool) -> None:
        self._end(None)

    def _end(self, head: AnswerHead | None) -> None:
        if not self._done.done():
            self._done.set_result(head)


async def ask(
    upstreams: Upstreams, pool: Pool, path: bytes, message: bytes, limit: TimeLimit, at: Replica | None = None
) -> bytes:
    """Return the message that a replica answers with, `at` this one if it is given.

    Raises Problem, or UpstreamStatusError.
    """
    where = f"{pool.server}/{pool.name}"
    now = monotonic()
    replica = pool.pick(now) if at is None else at
    if replica is None:
        raise Problem(Kind.BUSY, f"No replica of {where} is there.", pool.retry_in(now))
    trial = replica.breaker.claim(now)
    try:
        call = _UnaryCall()
        try:
            async with asyncio.timeout(limit.seconds):
                connections = upstreams.connections(pool, replica)
                # Other calls may wait for the same connection: it has the time that it takes them.
                line = connections.take() or await connections.connect(upstreams.connect_seconds)
                head = await call.send(line, upstreams.first_headers(pool, path) + CALL_HEADERS, framed(message))
        except OSError as error:
            if isinstance(error, TimeoutError) and not limit.own:
                raise Problem(Kind.DEADLINE, "There was no answer in time.") from None
            replica.breaker.failed(monotonic(), trial)
            raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: {type(error).__name__}.") from None
        if head is not None and head.grpc_status:
            raise UpstreamStatusError(head.block, head.grpc_status)
        found = bytes(call.messages)
        if head is None or head.grpc_status is None or len(found) < 5 or found[1:5] != (len(found) - 5).to_bytes(4):
            replica.breaker.failed(monotonic(), trial)
            raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: it gave no whole answer.")
        replica.breaker.succeeded(trial)
        return found[5:]
    finally:
        if trial is not None:
            trial.given_up()  # unless its outcome was noted


async def send_mirrored(
    upstreams: Upstreams, pool: Pool, headers: bytes, version: str, double: Replica, message: bytes
) -> Outcome:
    """Send a mirrored message, which is to ask for `version`, to a replica's double; raises OSError."""
    line = await upstreams.connections(pool, double).connect(upstreams.connect_seconds)
    # Of a field that occurs twice, the last counts (protobuf, "Last One Wins").
    asks_for = message[5:] + text(_VERSION_FIELD, version.encode())
    head = await _UnaryCall(discard=True).send(line, headers, framed(asks_for))
    if head is None:
        return "failed"
    return "refused" if head.grpc_status or head.status not in (0, 200) else "answered"
