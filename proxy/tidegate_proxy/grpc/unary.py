"""Whole calls of the proxy's own: one message to a replica, and its one answer."""

import asyncio
from time import monotonic

from ..http2.frames import CANCEL
from ..http2.sending import Stream
from ..mirror import Outcome
from ..pools import Pool
from ..problems import Kind, Problem
from ..upstream.replica import Replica
from .deadline import Deadline
from .metadata import ResponseHeaders
from .protobuf import framed, text
from .upstreams import UpstreamConnection, Upstreams

MOST_BYTES = 64 * 1024 * 1024
"""Bytes of an answer."""
_VERSION_FIELD = 2
"""`model_version` of ModelInferRequest."""


class UpstreamStatusError(Exception):
    """A replica answered with a gRPC status of its own, which goes to the caller as it is."""

    def __init__(self, block: bytes, code: int) -> None:
        super().__init__(f"status {code}")
        self.block = block
        self.code = code


class _UnaryCall(Stream):
    """Gathers an answer; `discard` drops its messages as they come."""

    def __init__(self, discard: bool = False) -> None:
        self.messages = bytearray()
        self._discard = discard
        self._done: asyncio.Future[ResponseHeaders | None] = asyncio.get_running_loop().create_future()

    async def send(self, connection: UpstreamConnection, headers: bytes, message: bytes) -> ResponseHeaders | None:
        """Make the call, and return what ended the answer: None where that was no status."""
        connection.open(self, headers)
        connection.send_data(self, message, True)
        try:
            return await self._done
        finally:
            if not self.remote_closed:
                connection.reset(self.number, CANCEL)

    def headers_received(self, headers: ResponseHeaders, end: bool) -> None:
        if end or headers.status not in (0, 200):
            self._end(headers)

    def data_received(self, data: bytes, end: bool) -> None:
        if not self._discard:
            self.messages += data
        self.connection.credit(self, len(data))
        if end or len(self.messages) > MOST_BYTES:
            self._end(None)

    def reset_received(self, _code: int | None, _processed: bool) -> None:
        self._end(None)

    def _end(self, headers: ResponseHeaders | None) -> None:
        if not self._done.done():
            self._done.set_result(headers)


async def ask(
    upstreams: Upstreams, pool: Pool, path: bytes, message: bytes, deadline: Deadline, at: Replica | None = None
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
            async with asyncio.timeout(deadline.left):
                connection = await upstreams.connect(pool, replica)
                head = await call.send(connection, upstreams.first_headers(pool, path), framed(message))
        except OSError as error:
            if isinstance(error, TimeoutError) and not deadline.is_own:
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
    connection = await upstreams.connect(pool, double)
    # Of a field that occurs twice, the last counts (protobuf, "Last One Wins").
    asks_for = message[5:] + text(_VERSION_FIELD, version.encode())
    head = await _UnaryCall(discard=True).send(connection, headers, framed(asks_for))
    if head is None:
        return "failed"
    return "refused" if head.grpc_status or head.status not in (0, 200) else "answered"
