"""Small questions to replicas, and what is asked of servers rather than of models."""

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from ..problems import Kind, Problem
from ..servers import Servers
from ..upstream.pool import Pool
from .frames import CANCEL
from .heads import AnswerHead, literal
from .methods import SERVICE
from .protobuf import BYTES, MalformedError, fields, integer, last, text
from .stream import Stream

if TYPE_CHECKING:
    from .switchboard import Switchboard

MOST_BYTES = 64 * 1024 * 1024
_HEADERS = literal(b"te", b"trailers") + literal(b"content-type", b"application/grpc")
_STATS = 1
_STATS_NAME = 1


class ToldError(Exception):
    """A replica answered with a status of its own, which is the caller's to have as it is."""

    def __init__(self, block: bytes, code: int) -> None:
        super().__init__(f"status {code}")
        self.block = block
        self.code = code


class _Question(Stream):
    def __init__(self) -> None:
        self.messages = bytearray()
        self.done: asyncio.Future[AnswerHead | None] = asyncio.get_running_loop().create_future()

    def take_head(self, head: AnswerHead, end: bool) -> None:
        if end or head.status not in (0, 200):
            self._end(head)

    def take_data(self, data: bytes, end: bool) -> None:
        self.messages += data
        self.link.credit(self, len(data))
        if end or len(self.messages) > MOST_BYTES:
            self._end(None)

    def take_reset(self, _code: int | None, _processed: bool) -> None:
        self._end(None)

    def _end(self, head: AnswerHead | None) -> None:
        if not self.done.done():
            self.done.set_result(head)


async def ask(board: "Switchboard", pool: Pool, path: bytes, message: bytes, seconds: float) -> bytes:
    """Return the message that a replica answers with; raises Problem, or ToldError."""
    where = f"{pool.server}/{pool.name}"
    replica = pool.pick(monotonic())
    if replica is None:
        raise Problem(Kind.BUSY, f"No replica of {where} is there.", pool.retry_in(monotonic()))
    question = _Question()
    try:
        async with asyncio.timeout(seconds):
            lines = board.lines(pool, replica)
            line = lines.take() or await lines.connect(seconds)
            line.open(question, board.first_headers(pool, path) + _HEADERS)
            line.send_data(question, b"\0" + len(message).to_bytes(4) + message, True)
            try:
                head = await question.done
            finally:
                if not question.remote_closed:
                    line.reset(question.number, CANCEL)
    except OSError as error:
        replica.breaker.failed(monotonic())
        raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: {type(error).__name__}.") from None
    if head is not None and head.grpc_status:
        raise ToldError(head.block, head.grpc_status)
    answer = bytes(question.messages)
    if head is None or head.grpc_status is None or len(answer) < 5 or len(answer) != 5 + int.from_bytes(answer[1:5]):
        replica.breaker.failed(monotonic())
        raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: it gave no whole answer.")
    replica.breaker.succeeded()
    return answer[5:]


class Questions:
    """Answers from the servers' own, as far as the caller may see them; each is a message with its length before it."""

    def __init__(self, board: "Switchboard", servers: Servers) -> None:
        self._board = board
        self._servers = servers

    async def live(self, credential: bytes, server: str | None) -> bytes:
        """Tell whether the server is alive."""
        await self._servers.live(credential, server)
        return framed(integer(1, 1))

    async def ready(self, credential: bytes, server: str | None) -> bytes:
        """Tell whether a replica of it, or of every server, can be used."""
        answer = await self._servers.ready(credential, server)
        return framed(integer(1, 1) if answer.status_code == 200 else b"")

    async def metadata(self, credential: bytes, server: str | None, seconds: float) -> bytes:
        """Answer what the server says of itself; without a name, the first that the caller may see."""
        routes = await self._servers.seen(credential, server)
        return framed(await self._ask(routes[0].pool, b"ServerMetadata", b"", seconds))

    async def statistics(self, credential: bytes, server: str | None, seconds: float) -> bytes:
        """Answer the statistics of every model that the caller may inspect, from a replica of each pool."""
        routes = await self._servers.seen(credential, server)
        pools = list({id(route.pool): route.pool for route in routes}.values())
        answers = await asyncio.gather(
            *(self._ask(pool, b"ModelStatistics", b"", seconds) for pool in pools), return_exceptions=len(pools) > 1
        )
        found = b""
        for pool, answer in zip(pools, answers, strict=True):
            if isinstance(answer, bytes):
                visible = {route.name.encode() for route in routes if route.pool is pool}
                found += _only(answer, visible)
            elif not isinstance(answer, Problem | ToldError):
                raise answer
        return framed(found)

    async def _ask(self, pool: Pool, method: bytes, message: bytes, seconds: float) -> bytes:
        return await ask(self._board, pool, b"/%b/%b" % (SERVICE.encode(), method), message, seconds)


def framed(message: bytes) -> bytes:
    """Return a message as gRPC sends it, not compressed."""
    return b"\0" + len(message).to_bytes(4) + message


def _only(statistics: bytes, visible: set[bytes]) -> bytes:
    """Return the statistics of these models alone."""
    try:
        found = [found for found in fields(statistics) if found[:2] == (_STATS, BYTES)]
        parts = [statistics[start:end] for _, _, start, end in found]
        return b"".join(text(_STATS, part) for part in parts if last(part, _STATS_NAME) in visible)
    except MalformedError:
        raise Problem(Kind.UPSTREAM, "The inference server's statistics cannot be read.") from None
