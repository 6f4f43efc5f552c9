"""State shared by all gRPC calls, and the calls that the proxy answers itself: server state and grpc.health.v1."""

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
from .upstreams import Upstreams, call_replica

_METADATA, _STATISTICS = (f"/{SERVICE}/{name}".encode() for name in ("ServerMetadata", "ModelStatistics"))
_EXTENSIONS = 3  # Of ServerMetadataResponse.


@dataclass
class GrpcContext:
    """State shared by all calls. Its methods return responses to requests about servers, with only what the caller may
    see. Streams have separate slots, `streams`, so that idle ones do not block other calls."""

    shared: SharedState
    upstreams: Upstreams
    servers: ServerQueries
    streams: ConcurrencyLimiter

    async def metadata(self, credential: bytes, server: str | None, deadline: Deadline) -> bytes:
        """Return a server's metadata, by default the first visible one's. Raises Problem or UpstreamStatusError."""
        routes = await self.servers.seen_v2(credential, server)
        return _served(await call_replica(self.upstreams, routes[0].pool, _METADATA, b"", deadline))

    async def answer_without_lease(self, method: str, pool: Pool, named: RequestedModel, deadline: Deadline) -> bytes:
        """Return a model's readiness or statistics (empty if not loaded). Raises Problem or UpstreamStatusError."""
        assert pool.leases is not None
        if method == "ModelReady":
            return integer(1, 1) if await pool.leases.is_ready(named.model) else b""
        if (replica := pool.leases.warm_at(named.model, monotonic())) is None:
            return b""
        message = text(1, named.model.encode()) + (text(2, named.version.encode()) if named.version else b"")
        return await call_replica(self.upstreams, pool, _STATISTICS, message, deadline, replica)

    def health(self, service: str) -> int:
        """Return the status of a service. Raises Problem."""
        if service not in ("", SERVICE, HEALTH):
            raise Problem(ProblemType.UNKNOWN, "The proxy does not have this service.")
        return NOT_SERVING if self.shared.draining else SERVING


def _served(metadata: bytes) -> bytes:
    """Remove extensions from a server's metadata that the proxy does not forward."""
    try:
        kept = [
            text(number, metadata[start:end])
            for number, wire, start, end in fields(metadata)
            if wire == BYTES and (number != _EXTENSIONS or metadata[start:end].decode() in EXTENSIONS)
        ]
        return b"".join(kept)
    except (MalformedError, UnicodeDecodeError):
        raise Problem(ProblemType.UPSTREAM, "The inference server's metadata cannot be parsed.") from None


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
        """Add a part of the message. Answer when it is complete."""
        if self.done or self.task is not None:
            return
        self._message += data
        if len(self._message) > MOST_BYTES:
            why = f"The message is too large: the limit is {MOST_BYTES} bytes."
            self.fail(Problem(ProblemType.TOO_LONG, why))
        elif end:
            self.start(self._answer)

    async def _answer(self) -> None:
        message = self._message
        if len(message) < 5 or message[0] or len(message) != 5 + int.from_bytes(message[1:5]):
            raise Problem(ProblemType.MALFORMED, "The request must be exactly one uncompressed message.")
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
            raise Problem(ProblemType.MALFORMED, f"The message is not valid protobuf: {error}.") from None
