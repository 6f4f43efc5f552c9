"""What all gRPC calls of a proxy share: turns, connections, and what is asked of servers."""

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
from ..upstream.replica import Replica
from .messages import RequestedModel
from .metadata import SERVICE
from .protobuf import BYTES, MalformedError, fields, integer, last, text
from .response import Deadline
from .upstreams import Upstreams, UpstreamStatusError, ask

_STATS = 1
_STATS_NAME = 1


class ServerMethods:
    """Each returns the message that answers it, of what the caller may see; raises Problem, or UpstreamStatusError."""

    def __init__(self, upstreams: Upstreams, servers: ServerQueries) -> None:
        self._upstreams = upstreams
        self._servers = servers

    async def live(self, credential: bytes, server: str | None) -> bytes:
        """Tell whether the server is alive."""
        await self._servers.live(credential, server)
        return integer(1, 1)

    async def ready(self, credential: bytes, server: str | None) -> bytes:
        """Tell whether a replica of it, or of every server, can be used."""
        return integer(1, 1) if await self._servers.is_ready(credential, server) else b""

    async def metadata(self, credential: bytes, server: str | None, deadline: Deadline) -> bytes:
        """Answer what the server says of itself; without a name, the first that the caller may see."""
        routes = await self._servers.seen(credential, server)
        return await self._ask(routes[0].pool, b"ServerMetadata", b"", deadline)

    async def statistics(self, credential: bytes, server: str | None, deadline: Deadline) -> tuple[bytes, str]:
        """Answer the statistics of every model that the caller may inspect, and which pools are unavailable."""

        async def of_pool(pool: Pool, visible: set[str]) -> bytes:
            return _only(await self._ask(pool, b"ModelStatistics", b"", deadline), visible)

        refusals = (Problem, UpstreamStatusError)
        found, missing = await self._servers.of_each_pool(credential, server, of_pool, refusals)
        return b"".join(found), missing

    async def look(self, method: str, pool: Pool, asked: RequestedModel, deadline: Deadline) -> bytes:
        """Answer whether a model that is loaded on demand could be called, or its statistics: none where it is cold."""
        assert pool.leases is not None
        if method == "ModelReady":
            return integer(1, 1) if await pool.leases.is_ready(asked.model) else b""
        if (replica := pool.leases.warm_at(asked.model, monotonic())) is None:
            return b""
        message = text(1, asked.model.encode()) + (text(2, asked.version.encode()) if asked.version else b"")
        return await self._ask(pool, b"ModelStatistics", message, deadline, replica)

    async def _ask(
        self, pool: Pool, method: bytes, message: bytes, deadline: Deadline, at: Replica | None = None
    ) -> bytes:
        return await ask(self._upstreams, pool, b"/%b/%b" % (SERVICE.encode(), method), message, deadline, at)


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
