"""What all gRPC calls share; and the calls that the proxy answers itself: of servers, and grpc.health.v1."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from ..concurrency import ConcurrencyLimiter
from ..pools import Pool
from ..problems import Kind, Problem
from ..servers import ServerQueries
from ..shared_state import SharedState
from .messages import RequestedModel
from .metadata import HEALTH, SERVICE, RequestHeaders
from .protobuf import BYTES, MalformedError, fields, framed, integer, last, text
from .response import CallerStream, Deadline
from .upstreams import Upstreams, UpstreamStatusError, ask

_METADATA, _STATISTICS = (f"/{SERVICE}/{name}".encode() for name in ("ServerMetadata", "ModelStatistics"))
_STATS = 1
_STATS_NAME = 1


class ServerMethods:
    """Each returns the message that answers it, of what the caller may see; raises Problem, or UpstreamStatusError."""

    def __init__(self, upstreams: Upstreams, servers: ServerQueries) -> None:
        self._upstreams = upstreams
        self.queries = servers
        """Those that are the same over HTTP."""

    async def metadata(self, credential: bytes, server: str | None, deadline: Deadline) -> bytes:
        """Answer what the server says of itself; without a name, the first that the caller may see."""
        routes = await self.queries.seen(credential, server)
        return await ask(self._upstreams, routes[0].pool, _METADATA, b"", deadline)

    async def statistics(self, credential: bytes, server: str | None, deadline: Deadline) -> tuple[bytes, str]:
        """Answer the statistics of every model that the caller may inspect, and which pools are unavailable."""

        async def of_pool(pool: Pool, visible: set[str]) -> bytes:
            return _only(await ask(self._upstreams, pool, _STATISTICS, b"", deadline), visible)

        refusals = (Problem, UpstreamStatusError)
        found, missing = await self.queries.of_each_pool(credential, server, of_pool, refusals)
        return b"".join(found), missing

    async def look(self, method: str, pool: Pool, asked: RequestedModel, deadline: Deadline) -> bytes:
        """Answer whether a model that is loaded on demand could be called, or its statistics: none where it is cold."""
        assert pool.leases is not None
        if method == "ModelReady":
            return integer(1, 1) if await pool.leases.is_ready(asked.model) else b""
        if (replica := pool.leases.warm_at(asked.model, monotonic())) is None:
            return b""
        message = text(1, asked.model.encode()) + (text(2, asked.version.encode()) if asked.version else b"")
        return await ask(self._upstreams, pool, _STATISTICS, message, deadline, replica)


def _only(statistics: bytes, visible: set[str]) -> bytes:
    """Return the statistics of these models alone."""
    try:
        found = [found for found in fields(statistics) if found[:2] == (_STATS, BYTES)]
        parts = [statistics[start:end] for _, _, start, end in found]
        return b"".join(text(_STATS, part) for part in parts if (last(part, _STATS_NAME) or b"").decode() in visible)
    except (MalformedError, UnicodeDecodeError):
        raise Problem(Kind.UPSTREAM, "The inference server's statistics cannot be read.") from None


class TurnQueue:
    """Long work in small steps: in each turn of the loop one call does one step."""

    def __init__(self) -> None:
        self._steps: deque[Callable[[], None]] = deque()

    def add(self, step: Callable[[], None]) -> None:
        """Have a step done in its turn."""
        self._steps.append(step)
        if len(self._steps) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._steps[0]()  # its call may add another, behind those of the others
        self._steps.popleft()
        if self._steps:
            asyncio.get_running_loop().call_soon(self._next)


@dataclass
class GrpcContext:
    """Streams have slots of their own, `streams`: idle ones keep no other call waiting."""

    shared: SharedState
    upstreams: Upstreams
    servers: ServerMethods
    streams: ConcurrencyLimiter
    unpacking: TurnQueue = field(default_factory=TurnQueue)


MOST_BYTES = 64 * 1024
(SERVING, NOT_SERVING, SERVICE_UNKNOWN) = range(1, 4)


class Health:
    """What grpc.health.v1 says of the proxy, and the calls that watch it."""

    def __init__(self, shared: SharedState) -> None:
        self.watchers: set[ProxyCall] = set()
        self._shared = shared

    def status(self, service: str) -> int:
        """Return the status of a service; raises Problem."""
        if service not in ("", SERVICE, HEALTH):
            raise Problem(Kind.UNKNOWN, "There is no such service here.")
        return NOT_SERVING if self._shared.draining else SERVING

    def changed(self) -> None:
        """Tell the watchers."""
        for watcher in list(self.watchers):
            watcher.health_changed()


class ProxyCall(CallerStream):
    """One such call: a short message, and one answer, or several of a watch."""

    _message = b""
    _task: asyncio.Task[None] | None = None
    _told: int | None = None
    """The status that the watch was told last."""

    def __init__(
        self, context: GrpcContext, health: Health, headers: RequestHeaders, method: str, started: float
    ) -> None:
        super().__init__(context.shared, headers, started)
        self._servers = context.servers
        self._health = health
        self._method = method

    def data_received(self, data: bytes, end: bool) -> None:
        """Take a part of the message, and answer when it is whole."""
        if self.done or self._task is not None:
            return
        self._message += data
        if len(self._message) > MOST_BYTES:
            self.fail(Problem(Kind.TOO_LONG, f"A message may have {MOST_BYTES} bytes here."))
        elif end:
            self._task = self.connection.loop.create_task(self._answer())

    def leave(self) -> None:
        """End it: the proxy is stopping."""
        self.fail(Problem(Kind.BUSY, "The proxy is stopping.", 0.0))

    def health_changed(self) -> None:
        """Send the status to the caller, which watches it, if it has changed."""
        try:
            status = self._health.status(self._service())
        except Problem:
            status = SERVICE_UNKNOWN
        if status != self._told:
            self._told = status
            self.connection.send_data(self, framed(integer(1, status)))

    async def _answer(self) -> None:
        try:
            message = self._message
            if len(message) < 5 or message[0] or len(message) != 5 + int.from_bytes(message[1:5]):
                raise Problem(Kind.MALFORMED, "The request is one message that is not compressed.")
            if self._method == "Watch":
                self._watch()
            else:
                self.reply(await self._found())
        except Problem as problem:
            self.fail(problem)
        except UpstreamStatusError as error:
            self.end(error.code, error.block)
        except MalformedError as error:
            self.fail(Problem(Kind.MALFORMED, f"The message is no protobuf: {error}."))
        except Exception:
            self.defect()

    async def _found(self) -> bytes:
        credential = self.headers.credential
        if self._method == "Check":
            return integer(1, self._health.status(self._service()))
        if self._method == "List":
            status = integer(1, self._health.status(""))
            return b"".join(text(1, text(1, name.encode()) + text(2, status)) for name in ("", SERVICE, HEALTH))
        server = self.headers.server_name()
        if self._method == "ServerLive":
            await self._servers.queries.live(credential, server)
            return integer(1, 1)
        if self._method == "ServerReady":
            return integer(1, 1) if await self._servers.queries.is_ready(credential, server) else b""
        return await self._servers.metadata(credential, server, self.time)

    def _service(self) -> str:
        return (last(self._message[5:], 1) or b"").decode(errors="replace")

    def _watch(self) -> None:
        self.shared.open_calls.discard(self)
        self._health.watchers.add(self)
        self.answer_began()
        self.health_changed()

    def ended(self, _code: int) -> None:
        """Watch no more, and give up what the answer waits for."""
        self._health.watchers.discard(self)
        if self._task not in (None, asyncio.current_task(self.connection.loop)):
            self._task.cancel()
