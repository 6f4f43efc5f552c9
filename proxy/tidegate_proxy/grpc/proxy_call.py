"""The calls that the proxy answers itself: of servers, and grpc.health.v1."""

import asyncio

from ..http2.sending import Stream
from ..problems import TWO_CREDENTIALS, Kind, Problem
from ..request_ids import new_request_id
from ..shared_state import SharedState
from .context import GrpcContext
from .metadata import HEALTH, SERVICE, ProxyMethod, RequestHeaders
from .protobuf import MalformedError, framed, integer, last, text
from .response import Deadline, Response
from .upstreams import UpstreamStatusError

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


class ProxyCall(Stream):
    """One such call: a short message, and one answer, or several of a watch."""

    def __init__(
        self, context: GrpcContext, health: Health, headers: RequestHeaders, method: ProxyMethod, started: float
    ) -> None:
        shared = context.shared
        self._servers = context.servers
        self._health = health
        self._headers = headers
        self._method = method
        self._response = Response(self, shared, headers.request_id or new_request_id(), self._ended)
        self._deadline = Deadline(started, float(shared.settings.request_timeout_seconds), headers.seconds)
        self._message = b""
        self._task: asyncio.Task[None] | None = None
        self._told: int | None = None
        """The status that the watch was told last."""

    @property
    def deadline(self) -> float:
        """When its time is up, in monotonic seconds."""
        return self._deadline.at

    def begin(self, end: bool) -> None:
        """Wait for the message; `end`: there is none."""
        self._response.shared.open_calls.add(self)
        if self._headers.credentials > 1:
            self._response.fail(Problem(Kind.MALFORMED, TWO_CREDENTIALS))
        elif end:
            self.data_received(b"", True)

    def data_received(self, data: bytes, end: bool) -> None:
        """Take a part of the message, and answer when it is whole."""
        if self._response.done or self._task is not None:
            return
        self._message += data
        if len(self._message) > MOST_BYTES:
            self._response.fail(Problem(Kind.TOO_LONG, f"A message may have {MOST_BYTES} bytes here."))
        elif end:
            self._task = self.connection.loop.create_task(self._answer())

    def headers_received(self, _: RequestHeaders, end: bool) -> None:
        """Take what follows the message: callers have nothing to say there."""
        if end:
            self.data_received(b"", True)

    def reset_received(self, _code: int | None, _processed: bool) -> None:
        """End it: the caller has left."""
        if self._task is not None:
            self._task.cancel()
        self._response.abandon()

    def expire(self) -> None:
        """End it: its time is up."""
        if self._task is not None:
            self._task.cancel()
        self._response.fail(Problem(Kind.DEADLINE, "There was no answer in time."))

    def leave(self) -> None:
        """End it: the proxy is stopping."""
        self._response.fail(Problem(Kind.BUSY, "The proxy is stopping.", 0.0))

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
                self._response.reply(await self._found())
        except Problem as problem:
            self._response.fail(problem)
        except UpstreamStatusError as error:
            self._response.end(error.code, error.block)
        except MalformedError as error:
            self._response.fail(Problem(Kind.MALFORMED, f"The message is no protobuf: {error}."))
        except Exception:
            self._response.defect()

    async def _found(self) -> bytes:
        credential = self._headers.credential
        if self._method == "Check":
            return integer(1, self._health.status(self._service()))
        if self._method == "List":
            status = integer(1, self._health.status(""))
            return b"".join(text(1, text(1, name.encode()) + text(2, status)) for name in ("", SERVICE, HEALTH))
        server = self._headers.server_name()
        if self._method == "ServerLive":
            return await self._servers.live(credential, server)
        if self._method == "ServerReady":
            return await self._servers.ready(credential, server)
        return await self._servers.metadata(credential, server, self._deadline)

    def _service(self) -> str:
        return (last(self._message[5:], 1) or b"").decode(errors="replace")

    def _watch(self) -> None:
        self._response.shared.open_calls.discard(self)
        self._health.watchers.add(self)
        self._response.begin()
        self.health_changed()

    def _ended(self, _code: int) -> None:
        self._response.shared.open_calls.discard(self)
        self._health.watchers.discard(self)
