"""Small questions to replicas, and what is asked of servers rather than of models."""

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from ..problems import Kind, Problem
from ..servers import Servers
from ..upstream.breaker import Trial
from ..upstream.pool import Pool, Replica
from .frames import CANCEL
from .heads import AnswerHead, literal
from .intake import Asked
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


@dataclass(frozen=True, slots=True)
class Bound:
    """How long an answer may take."""

    seconds: float
    own: bool
    """Whether that is the proxy's own bound, and not less because the caller waits no longer: only then is it the
    replica's failure that there is no answer in that time."""


async def ask(
    board: "Switchboard", pool: Pool, path: bytes, message: bytes, bound: Bound, at: Replica | None = None
) -> bytes:
    """Return the message that a replica answers with, `at` this one if it is told; raises Problem, or ToldError."""
    where = f"{pool.server}/{pool.name}"
    now = monotonic()
    replica = pool.pick(now) if at is None else at
    if replica is None:
        raise Problem(Kind.BUSY, f"No replica of {where} is there.", pool.retry_in(now))
    trial = replica.breaker.claim(now)
    try:
        return await _asked(board, pool, replica, path, message, bound, trial)
    finally:
        if trial is not None:
            trial.given_up()  # unless it told something


async def _asked(
    board: "Switchboard",
    pool: Pool,
    replica: Replica,
    path: bytes,
    message: bytes,
    bound: Bound,
    trial: Trial | None,
) -> bytes:
    where = f"{pool.server}/{pool.name}"
    question = _Question()
    try:
        async with asyncio.timeout(bound.seconds):
            lines = board.lines(pool, replica)
            # Others may wait for the same connection: it has the time that it takes them.
            line = lines.take() or await lines.connect(board.shared.settings.connect_timeout_seconds)
            line.open(question, board.first_headers(pool, path) + _HEADERS)
            line.send_data(question, b"\0" + len(message).to_bytes(4) + message, True)
            try:
                head = await question.done
            finally:
                if not question.remote_closed:
                    line.reset(question.number, CANCEL)
    except OSError as error:
        if isinstance(error, TimeoutError) and not bound.own:
            raise Problem(Kind.DEADLINE, "There was no answer in time.") from None
        replica.breaker.failed(monotonic(), trial)
        raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: {type(error).__name__}.") from None
    if head is not None and head.grpc_status:
        raise ToldError(head.block, head.grpc_status)
    answer = bytes(question.messages)
    if head is None or head.grpc_status is None or len(answer) < 5 or len(answer) != 5 + int.from_bytes(answer[1:5]):
        replica.breaker.failed(monotonic(), trial)
        raise Problem(Kind.UPSTREAM, f"No replica of {where} answered: it gave no whole answer.")
    replica.breaker.succeeded(trial)
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

    async def metadata(self, credential: bytes, server: str | None, bound: Bound) -> bytes:
        """Answer what the server says of itself; without a name, the first that the caller may see."""
        routes = await self._servers.seen(credential, server)
        return framed(await self._ask(routes[0].pool, b"ServerMetadata", b"", bound))

    async def statistics(self, credential: bytes, server: str | None, bound: Bound) -> tuple[bytes, bytes]:
        """Answer the statistics of every model that the caller may inspect, from a replica of each pool.

        Pools that give none are left out, and their names returned as well; raises Problem or ToldError when no pool
        gives any.
        """
        routes = await self._servers.seen(credential, server)
        pools = list({id(route.pool): route.pool for route in routes}.values())
        answers = await asyncio.gather(
            *(self._ask(pool, b"ModelStatistics", b"", bound) for pool in pools), return_exceptions=True
        )
        found, missing = b"", {}
        for pool, answer in zip(pools, answers, strict=True):
            try:
                if isinstance(answer, BaseException):
                    raise answer
                found += _only(answer, {route.name.encode() for route in routes if route.pool is pool})
            except (Problem, ToldError) as problem:
                missing[f"{pool.server}/{pool.name}"] = problem
        if len(missing) == len(pools):
            raise next(iter(missing.values()))
        return framed(found), ", ".join(missing).encode()

    async def statistics_at(self, pool: Pool, replica: Replica, asked: Asked, bound: Bound) -> bytes:
        """Answer the statistics of one model from this replica."""
        message = text(1, asked.model.encode()) + (text(2, asked.version.encode()) if asked.version else b"")
        path = b"/%b/ModelStatistics" % SERVICE.encode()
        return framed(await ask(self._board, pool, path, message, bound, replica))

    async def _ask(self, pool: Pool, method: bytes, message: bytes, bound: Bound) -> bytes:
        return await ask(self._board, pool, b"/%b/%b" % (SERVICE.encode(), method), message, bound)


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
