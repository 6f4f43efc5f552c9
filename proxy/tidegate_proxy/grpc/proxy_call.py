"""What all gRPC calls share; and the calls that the proxy answers itself: of servers, and grpc.health.v1."""

from dataclasses import dataclass
from time import monotonic

from ..concurrency import ConcurrencyLimiter
from ..pools import Pool
from ..problems import Problem, ProblemType
from ..servers import ServerQueries
from ..shared_state import SharedState
from ..triton.kind import EXTENSIONS
from .messages import RequestedModel
from .metadata import HEALTH, SERVICE, RequestHeaders
from .protobuf import BYTES, MalformedError, fields, integer, last, text
from .response import CallerStream, Deadline
from .upstreams import Upstreams, ask

_METADATA, _STATISTICS = (f"/{SERVICE}/{name}".encode() for name in ("ServerMetadata", "ModelStatistics"))
_EXTENSIONS = 3  # Of ServerMetadataResponse.


@dataclass
class GrpcContext:
    """Shared by all calls; its methods return the messages that answer questions about servers.

    These hold nothing that the caller may not see. Streams have slots of their own, `streams`: idle ones keep no other
    call waiting.
    """

    shared: SharedState
    upstreams: Upstreams
    servers: ServerQueries
    streams: ConcurrencyLimiter

    async def metadata(self, credential: bytes, server: str | None, deadline: Deadline) -> bytes:
        """Answer what the server says of itself; without a name, the first that the caller may see.

        This and the next one raise Problem, or UpstreamStatusError.
        """
        routes = await self.servers.asked(credential, server)
        return _served(await ask(self.upstreams, routes[0].pool, _METADATA, b"", deadline))

    async def answer_without_lease(self, method: str, pool: Pool, asked: RequestedModel, deadline: Deadline) -> bytes:
        """Answer whether a model that is loaded on demand could be called, or its statistics: none where it is cold."""
        assert pool.leases is not None
        if method == "ModelReady":
            return integer(1, 1) if await pool.leases.is_ready(asked.model) else b""
        if (replica := pool.leases.warm_at(asked.model, monotonic())) is None:
            return b""
        message = text(1, asked.model.encode()) + (text(2, asked.version.encode()) if asked.version else b"")
        return await ask(self.upstreams, pool, _STATISTICS, message, deadline, replica)

    def health(self, service: str) -> int:
        """Return the status of a service; raises Problem."""
        if service not in ("", SERVICE, HEALTH):
            raise Problem(ProblemType.UNKNOWN, "There is no such service here.")
        return NOT_SERVING if self.shared.draining else SERVING


def _served(metadata: bytes) -> bytes:
    """Return a server's metadata with those of its extensions that are served here."""
    try:
        kept = [
            text(number, metadata[start:end])
            for number, wire, start, end in fields(metadata)
            if wire == BYTES and (number != _EXTENSIONS or metadata[start:end].decode() in EXTENSIONS)
        ]
        return b"".join(kept)
    except (MalformedError, UnicodeDecodeError):
        raise Problem(ProblemType.UPSTREAM, "The inference server's metadata cannot be read.") from None


MOST_BYTES = 4096
SERVING, NOT_SERVING = 1, 2


class ProxyCall(CallerStream):
    """A gRPC call that the proxy answers itself (server state, grpc.health.v1)."""

    _message = b""

    def __init__(self, context: GrpcContext, headers: RequestHeaders, method: str, started: float) -> None:
        super().__init__(context.shared, headers, started)
        self._context = context
        self._method = method

    def data_received(self, data: bytes, end: bool) -> None:
        """Take a part of the message, and answer when it is whole."""
        if self.done or self.task is not None:
            return
        self._message += data
        if len(self._message) > MOST_BYTES:
            self.fail(Problem(ProblemType.TOO_LONG, f"A message may have {MOST_BYTES} bytes here."))
        elif end:
            self.start(self._answer)

    async def _answer(self) -> None:
        message = self._message
        if len(message) < 5 or message[0] or len(message) != 5 + int.from_bytes(message[1:5]):
            raise Problem(ProblemType.MALFORMED, "The request is one message that is not compressed.")
        self.reply(await self._found())

    async def _found(self) -> bytes:
        context, credential = self._context, self.headers.credential
        if self._method == "Check":
            return integer(1, context.health(self._service()))
        server = self.headers.server_name()
        if self._method == "ServerLive":
            await context.servers.live(credential, server)
            return integer(1, 1)
        if self._method == "ServerReady":
            return integer(1, 1) if await context.servers.is_ready(credential, server) else b""
        return await context.metadata(credential, server, self.time)

    def _service(self) -> str:
        try:
            return (last(self._message[5:], 1) or b"").decode(errors="replace")
        except MalformedError as error:
            raise Problem(ProblemType.MALFORMED, f"The message is no protobuf: {error}.") from None
