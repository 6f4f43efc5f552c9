"""The calls that the proxy answers itself: of servers, and grpc.health.v1."""

import asyncio

from ..problems import Kind, Problem
from ..shared_state import SharedState
from .context import GrpcContext
from .metadata import HEALTH, SERVICE, ProxyMethod, RequestHeaders
from .protobuf import MalformedError, framed, integer, last, text
from .response import CallerStream
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


class ProxyCall(CallerStream):
    """One such call: a short message, and one answer, or several of a watch."""

    _message = b""
    _task: asyncio.Task[None] | None = None
    _told: int | None = None
    """The status that the watch was told last."""

    def __init__(
        self, context: GrpcContext, health: Health, headers: RequestHeaders, method: ProxyMethod, started: float
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
            return await self._servers.live(credential, server)
        if self._method == "ServerReady":
            return await self._servers.ready(credential, server)
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
