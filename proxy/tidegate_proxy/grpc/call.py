"""One call of a model: authorised, sent to a replica, and its response passed back as it arrives.

A stream stays at one replica, but the proxy authorises each of its messages.
"""

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any

from ..access.identity import Grant
from ..forwarding import Forwarding
from ..problems import AGAIN_SECONDS, Problem, ProblemType, no_answer, still_loading
from ..residency.leases import Lease
from ..targets import GrantKey
from ..upstream.replica import Replica
from .messages import MessageReader, RequestedModel
from .metadata import Method, RequestHeaders
from .proxy_call import GrpcContext
from .response import CALL_BYTES, CallerStream
from .upstream_stream import UpstreamRequest, UpstreamStream
from .upstreams import UpstreamConnection, UpstreamConnections

WIDE_WINDOW = 1024 * 1024  # Bytes by which the window grows for a long message, once the call has a replica.


class _Forwarding(Forwarding):
    """The path of a gRPC call to a replica."""

    __slots__ = ("_call",)

    def __init__(self, call: "Call") -> None:
        super().__init__(call.shared)
        self._call = call

    def later(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        self._call.start(work, *given)

    async def answer_without_lease(self) -> None:
        await self._call.answer_without_lease(self)

    def admitted(self) -> None:
        """Continue with the slot. An error ends this call, not the call that has just released the slot."""
        super().admitted()
        self._call.guarded(self.go_to_replica, True)
        self._call.guarded(self._call.read)

    def _lines(self, replica: Replica) -> UpstreamConnections:
        return self._call.context.upstreams.to(self.route.pool, replica)

    def take(self, replica: Replica, _now: float) -> UpstreamConnection | None:
        return self._lines(replica).take(self.identity.in_flight.number)

    async def connect_to(self, replica: Replica) -> UpstreamConnection:
        return await self._lines(replica).connect(self.identity.in_flight.number)

    def send(self, replica: Replica, connection: UpstreamConnection) -> None:
        self.sent_to(replica)
        self._call.open(self, connection)


class Call(CallerStream):
    """The caller's side of one call, created from the headers of its request."""

    # Class defaults: they cost nothing in the calls that never change them.
    _requested: RequestedModel | None = None  # The model that the current message requests.
    _model: str | None = None  # The model of the first message.
    _upstream: UpstreamStream | None = None
    _more_leases: tuple[Lease, ...] = ()  # On further models of a stream, held until it ends.
    _refused: Sequence[bytes] = ()  # Messages that a replica has refused, for the next replica.
    _bytes_in = 0
    _unread = 0  # Bytes for which the caller has no flow-control credit yet.
    _waiting = False  # Whether sending on is paused until something has happened.
    _request_ended = False
    _generation = 0  # Of the tables when the stream was opened.
    _early: bytearray | None = None  # Data received before the caller is identified.

    def __init__(self, context: GrpcContext, headers: RequestHeaders, method: Method, started: float) -> None:
        self.context = context
        super().__init__(context.shared, headers, started, method.streams)
        self._method = method
        self.outgoing = UpstreamRequest(context, headers, method, self.id_header)
        self._reader = MessageReader(self.shared.settings.body_limit_bytes, method.whole)

    # --- from the caller
    def begun(self, is_known: bool) -> None:
        """Check the headers. The first message is not parsed until the caller is identified."""
        if self.headers.encoding != b"identity":
            why = "The proxy does not accept compressed messages. Send them uncompressed."
            self.fail(Problem(ProblemType.METHOD, why))
        elif not is_known:
            self._early, self._waiting = bytearray(), True
            self.start(self._identify)

    async def _identify(self) -> None:
        self.set_principal(await self.shared.authorizer.identify(self.headers.credential))
        early, self._early, self._waiting = self._early, None, False
        if early:
            self._reader.feed(bytes(early))
            self.hold()

    def held_bytes(self) -> int:
        held, came, upstream = super().held_bytes(), self._unread, self._upstream
        if upstream is not None:
            held += upstream.kept_bytes
            came = max(came, upstream.unsent_held)
        return held + max(came, self._reader.held_bytes)  # both count the same bytes

    def data_received(self, data: bytes, end: bool) -> None:
        if self.done:
            return
        self._bytes_in += len(data)
        self._unread += len(data)
        self._request_ended = end
        self.guarded(self.read, data)

    def drained(self) -> None:
        super().drained()
        if self._upstream is not None:
            self._upstream.caller_drained()

    def late(self) -> Problem:
        if self._upstream is not None and not self.began and self._request_ended:
            self._upstream.count_late()
        if self.forwarding is not None and self.forwarding.loading:
            return still_loading(self.time.seconds)
        if self._method.streams and self.time.at < self.time.last:
            return Problem(ProblemType.DEADLINE, "The stream was idle for too long.")
        return Problem(ProblemType.DEADLINE, no_answer(self.time.seconds))

    def replica_silent(self) -> None:
        if self._method.action == "inspect" and self._upstream is not None:
            self._upstream.silent()
        else:
            super().replica_silent()

    def leave(self) -> None:
        if self._upstream is not None:
            why = "The proxy is stopping. The inference server may have done the work. "
            self.fail(Problem(ProblemType.UPSTREAM, why + "Send the request again only if that does no harm."))
        super().leave()

    # --- reading messages
    def read(self, data: bytes = b"") -> None:
        """Process this data and what was received before."""
        if self._early is not None:
            self._early += data
        elif data:
            self._reader.feed(data)
        if self._unread > CALL_BYTES or self._reader.held_bytes > CALL_BYTES:
            self.hold()  # before any of it is sent on
        if not self._waiting:
            self._work()

    def _work(self) -> None:
        """Process the received data as far as possible without waiting. Raises Problem."""
        while not self._waiting and not self.done:
            if self._requested is None:
                self._requested = self._reader.requested()
                if self._requested is None:
                    break
                self._decide(self._requested)
            elif not self._send_on():
                break
        if not (self._waiting or self.done):
            self._end_request()

    def _send_on(self) -> bool:
        """Send on the received part of the current message. Return whether the message is complete."""
        forwarding, upstream = self.forwarding, self._upstream
        assert forwarding is not None
        assert upstream is not None
        data = self._reader.take(forwarding.version)
        whole = self._reader.between
        if whole:
            self._requested = None
        if data:
            upstream.send(data, whole and self._request_ended and self._reader.idle)
        return whole

    def _end_request(self) -> None:
        """Give credit for data that was sent on, and pass on the end of the request."""
        upstream = self._upstream
        if upstream is None or not upstream.unsent_bytes:
            self._give_credit()
        if not self._request_ended:
            return
        if not self._reader.idle:
            raise Problem(ProblemType.MALFORMED, "The request ends within a message.")
        if upstream is not None:
            upstream.end_messages()
        elif self.forwarding is None:
            if not self._method.streams:
                raise Problem(ProblemType.MALFORMED, "The request has no message.")
            self.end(0)

    def _give_credit(self) -> None:
        """Let the caller send as many bytes as were sent on."""
        if self._waiting:
            return
        if self._unread:
            self.connection.credit(self, self._unread)
            self._unread = 0
        if self.booking.size > CALL_BYTES + self.headers.size:
            self.ease()

    # --- authorising
    def _decide(self, requested: RequestedModel) -> None:
        if self._model is None:
            self._model = requested.model
        self._waiting = True  # until the call is authorised and has a replica
        if self._method.streams:
            self.time.message_sent()
        server = self.headers.server_name()
        if not requested.model:
            raise Problem(ProblemType.MALFORMED, "The message names no model.")
        key = server, requested.model, self._method.action, "triton"
        grant = self.shared.authorizer.known(self.headers.credential, key)
        if grant is None:
            self.start(self._authorize, key, requested)
        else:
            self._granted(grant, requested)

    async def _authorize(self, key: GrantKey, requested: RequestedModel) -> None:
        self._granted(await self.shared.authorizer.ask(self.headers.credential, *key), requested)

    def _granted(self, grant: Grant, requested: RequestedModel) -> None:
        # All requests of a sequence get the same version, and so do all requests of a stream.
        sticky = self.headers.sticky or requested.sequence or (self.request_id if self._method.streams else b"")
        if self.forwarding is not None:
            self._granted_more(self.forwarding, grant, requested, sticky or None)
            return
        self._generation = self.shared.authorizer.generation
        self.forwarding = forwarding = _Forwarding(self)
        forwarding.sequence, forwarding.sticky = requested.sequence or None, sticky or None
        method, streams = self._method, self.context.streams if self._method.streams else None
        read_only, needs_no_lease = method.action == "inspect", method.name in ("ModelReady", "ModelStatistics")
        forwarding.granted(grant, monotonic(), read_only, needs_no_lease, requested.version, False, streams)

    def _granted_more(self, forwarding: Forwarding, grant: Grant, named: RequestedModel, sticky: bytes | None) -> None:
        """Process a further message of a stream, which already has its slot."""
        pool_before = forwarding.route.pool
        forwarding.grant, forwarding.identity, forwarding.route = grant, grant.identity, grant.route
        grant.count(monotonic())
        if pool_before.name != grant.route.pool.name:
            raise self._elsewhere(named.model)
        forwarding.named, forwarding.sticky = named.version, sticky
        if forwarding.find_version() and self._use(forwarding, named.model):
            self._waiting = False
        else:
            self.start(self._prepare_more, forwarding, named.model)

    def _elsewhere(self, model: str) -> Problem:
        """Return the problem for a model in another pool than the stream. It may have been in the same pool before."""
        if self._generation == self.shared.authorizer.generation:
            why = "All models of a stream must be in the same server and pool: open another stream."
            return Problem(ProblemType.MALFORMED, why)
        why = f"The routing changed after this stream began, and {model} is in another pool: open another stream."
        return Problem(ProblemType.BUSY, why, 0.0, reason="moved")

    def _use(self, forwarding: Forwarding, model: str) -> bool:
        """Count a message for a model. Return False if a lease at the stream's replica must be acquired first."""
        leases, replica = forwarding.route.pool.leases, forwarding.replica
        if leases is None:
            return True
        assert replica is not None
        lease = leases.at(model, replica, monotonic())
        if lease is None:
            return False
        if lease is forwarding.lease or lease in self._more_leases:
            lease.requests += 1
        else:
            lease.enter()
            self._more_leases += (lease,)
        return True

    async def _prepare_more(self, forwarding: Forwarding, model: str) -> None:
        if not self._use(forwarding, model):
            leases, replica = forwarding.route.pool.leases, forwarding.replica
            assert leases is not None
            assert replica is not None
            forwarding.loading = True
            await leases.acquire_at(model, replica)
            forwarding.loading = False
            self._use(forwarding, model)
        if not forwarding.find_version():
            await forwarding.await_version()
        self._waiting = False

    async def answer_without_lease(self, forwarding: Forwarding) -> None:
        forwarding.find_version()
        assert self._requested is not None
        self.reply(
            await self.context.answer_without_lease(
                self._method.name, forwarding.route.pool, self._requested, self.time
            )
        )

    # --- to a replica
    def open(self, forwarding: Forwarding, connection: UpstreamConnection) -> None:
        """Begin the call at a replica, and send the messages that another replica has refused."""
        streams = self._method.streams
        self._upstream = UpstreamStream(self, forwarding, streams, self._give_credit, self._send_elsewhere)
        seconds = (self.time.last if streams else self.time.at) - monotonic()
        self._upstream.open(connection, self.outgoing.headers(forwarding.route.pool, seconds), self._refused)
        self._waiting = False
        if self._reader.missing > self.connection.stream_window // 2:
            self.connection.widen(self, WIDE_WINDOW)

    def _send_elsewhere(self, messages: Sequence[bytes]) -> bool:
        """Send these messages to another replica, if there is one. Return whether the call continues."""
        forwarding = self.forwarding
        assert forwarding is not None
        refused = forwarding.replica
        assert refused is not None
        self._upstream = None
        forwarding.leave_replica(monotonic())  # first, because another replica has another lease
        leased = forwarding.lease is not None
        if (other := forwarding.next_replica(refused)) is not None or forwarding.read_only:
            self._refused, self._waiting = messages, True
            self.start(forwarding.connect, other)
        elif leased:
            why = f"{refused.name} accepts no more calls. The request was not processed."
            self.fail(Problem(ProblemType.BUSY, why, AGAIN_SECONDS, reason="no-replica", replica=refused.name))
        else:
            return False
        return True

    # --- steps, and the end
    def worked(self) -> None:
        if not self._waiting:
            self._work()

    def guarded(self, step: Callable[..., None], *given: Any) -> None:
        """Run a step. An exception ends the call."""
        try:
            step(*given)
        except Problem as problem:
            self.fail(problem)
        except Exception:
            self.defect()

    def ended(self, code: int) -> None:
        super().ended(code)
        self._reader.drop()
        self._early, self._refused = None, ()
        upstream, self._upstream = self._upstream, None
        goes_on = upstream is not None and upstream.abandon()
        now = monotonic()
        self.outgoing.ended(self, code, now - self.time.started, self._model, self._bytes_in)
        if self.forwarding is not None and not goes_on:
            self.forwarding.give_back(now)
        for lease in self._more_leases:
            lease.leave(now)
