"""A call at its replica: its headers, its messages, and its response, which is passed on as it arrives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic

from ..concurrency import CUT_SECONDS
from ..forwarding import Forwarding, call_record, count_problem, no_whole_answer
from ..http2.frames import CANCEL, encode_header
from ..http2.sending import Stream
from ..memory import Reservation
from ..pools import Pool
from ..problems import Problem
from ..telemetry.records import CLIENT_LEFT
from ..telemetry.traces import Span, parent
from ..upstream.replica import Replica
from .metadata import SERVICE, STATUS_200, Method, RequestHeaders, ResponseHeaders
from .proxy_call import GrpcContext
from .response import CALL_BYTES, CANCELLED, CallerStream
from .upstreams import UpstreamConnection, first_headers

_LONGEST_TIMEOUT = 99_999_999  # The maximum of `grpc-timeout`, which has eight digits.
_GRAVE = frozenset({2, 4, 13, 14, 15})
"""UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS: failures that an admin should see."""


@dataclass(slots=True, eq=False)
class UpstreamRequest:
    """State that all attempts of one gRPC call share: headers, span, final log line."""

    _context: GrpcContext
    _headers: RequestHeaders
    _method: Method
    _id_header: bytes
    _span: Span | None = None

    def span(self) -> Span | None:
        """Return the call's span if calls are traced. It becomes the parent of the replica's span."""
        if self._span is None and (tracer := self._context.shared.tracer) is not None:
            self._span = tracer.begin(self._headers.trace_parents, self._headers.trace_states)
        return self._span

    @property
    def traceparent(self) -> bytes:
        """The trace parent for the replica: the proxy's own span, or what the caller sent."""
        span = self.span()
        return span.header if span is not None and span.sampled else parent(self._headers.trace_parents)

    def headers(self, pool: Pool, seconds: float) -> bytes:
        """Return the encoded headers for the replica, with a timeout of so many seconds."""
        block = [first_headers(pool, self._headers.path)]
        if self._headers.accepts:
            block.append(self._headers.accepts)
        if seconds < float("inf"):
            left = min(_LONGEST_TIMEOUT, max(1, int(seconds * 1000)))
            block.append(encode_header(b"grpc-timeout", b"%dm" % left))
        block += (self._headers.for_replica(self.span()), self._id_header)
        return b"".join(block)

    def ended(self, call: CallerStream, code: int, seconds: float, model: str | None, bytes_in: int) -> None:
        """Count, log and trace the end of the call with this status."""
        shared, forwarding, called, waited = self._context.shared, call.forwarding, None, 0.0
        if forwarding is not None:
            route = forwarding.route
            if not forwarding.read_only:  # calls for readiness and metadata are not work of the model
                if route.grpc_count is None:
                    route.grpc_count = shared.meter.of_calls(route.server, route.name, "grpc")
                route.grpc_count.ended(code, seconds, bytes_in, call.bytes_out)
                called, waited = (route.server, route.name), forwarding.waited
            if shared.meter.most_callers:
                principal = forwarding.identity.principal
                shared.meter.called(principal.name, principal.source, "grpc", code)
        # The equivalent HTTP status, for the log's sampling.
        weight = 200 if not code else 500 if code in _GRAVE else CLIENT_LEFT if code == CANCELLED else 400
        is_logged = shared.call_log.wants(weight, monotonic(), called, seconds, waited, forwarding is None)
        span = self.span()
        if not is_logged and (span is None or not span.sampled):
            return
        name, size = self._method.name, (bytes_in, call.bytes_out)
        target, trace = (None, model), self.traceparent
        record = call_record(forwarding, "grpc", call.request_id, name, target, call.problem, seconds, size, trace)
        if is_logged:
            shared.call_log.write(weight, {"status": code, **record})
        if shared.tracer is not None and span is not None:
            shared.tracer.grpc_ended(span, SERVICE, name, code, record)


UNKNOWN = 2
DEADLINE_EXCEEDED = 4
INTERNAL = 13
PREFIX = 5  # Bytes before each message: the compression flag and the length.
ERROR_MESSAGE = 0x0A  # The tag of `error_message` in a ModelStreamInferResponse.
MOST_KEPT = 256 * 1024
"""Bytes of a request that are kept until its response begins, to retry on another replica if this one refuses."""


@dataclass(eq=False)
class UpstreamStream(Stream):
    """One gRPC call at one replica. Messages of a `streaming` call extend its deadline. `drained` is called when all
    data was sent, `refused` with messages that the replica did not begin: it returns if they go elsewhere."""

    _caller: CallerStream
    _forwarding: Forwarding
    _streaming: bool
    _drained: Callable[[], None]
    _refused: Callable[[Sequence[bytes]], bool]
    deadline = inf  # When an abandoned call is reset, in monotonic seconds.
    _booking: Reservation | None = None  # The memory of an abandoned call.
    _kept_bytes = 0
    _has_error = False  # Whether a message of the stream reported an error.
    _prefix = b""  # The beginning of an incomplete message.
    _rest = 0  # Bytes of the last message that are still to come.
    _uncredited = 0  # Bytes of the response without flow-control credit, because the caller reads slowly.

    def __post_init__(self) -> None:
        self._kept: list[bytes] | None = None if self._streaming else []

    # --- to the replica
    def open(self, connection: UpstreamConnection, headers: bytes, messages: Sequence[bytes]) -> None:
        """Begin the call with these headers, and messages that another replica has refused."""
        connection.open(self, headers)
        for data in messages:
            self.send(data, False)

    def send(self, data: bytes, end: bool) -> None:
        """Send a part of a message. `end`: it is the last part of the request."""
        if self._kept is not None:
            self._kept.append(data)
            self._kept_bytes += len(data)
            if self._kept_bytes > MOST_KEPT:
                self._kept = None
        self.connection.send_data(self, data, end)
        if self._streaming:
            self._caller.time.message_sent()

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes if self._kept else 0

    def end_messages(self) -> None:
        """Send the end of the request, unless it was sent."""
        if not self.local_closed:
            self.connection.send_data(self, b"", True)

    def abandon(self) -> bool:
        """Abandon the call. Return whether the replica still processes it: Triton answers a reset with six, and before
        25.06 can crash on one. So a unary call that was sent is not reset, and keeps slot and lease."""
        self._kept = None
        if self.local_closed and self.remote_closed:
            return False
        if self.local_closed and not self._streaming and not self._caller.shared.draining and self._book():
            self.deadline = max(self._caller.time.at, monotonic() + CUT_SECONDS)
            self._caller.shared.open_calls.add(self)
            self.caller_drained()
            return True
        self.connection.reset(self.number, CANCEL)
        return False

    def _book(self) -> bool:
        booking = Reservation(self._caller.shared.memory.callers, self._forwarding.identity.in_flight)
        try:
            booking.set(CALL_BYTES + self._caller.headers.size)
        except Problem:
            return False
        self._booking = booking
        return True

    @property
    def replica(self) -> Replica | None:
        return self._forwarding.replica

    def expire(self) -> None:
        """Reset an abandoned call, because the replica does not respond in time."""
        self.connection.reset(self.number, CANCEL)
        self._abandoned_ended()

    replica_silent = expire

    def _abandoned_ended(self) -> None:
        if self._booking is not None:
            self._booking.end()
            self._booking = None
            self._caller.shared.open_calls.discard(self)
            self._forwarding.give_back(monotonic())

    def silent(self) -> None:
        """Retry elsewhere: the replica no longer responds, and the call is read-only."""
        self.connection.reset(self.number, CANCEL)
        self.reset_received(None, False)

    def caller_drained(self) -> None:
        if self._uncredited:
            self.connection.credit(self, self._uncredited)
            self._uncredited = 0

    def drained(self) -> None:
        self._drained()

    # --- from the replica
    def headers_received(self, headers: ResponseHeaders, end: bool) -> None:
        """Pass on headers before the first message, or trailers."""
        try:
            if not self._caller.done:
                self._take_headers(headers, end)
            elif end:
                if headers.grpc_status != DEADLINE_EXCEEDED:  # gRPC's library in the replica sets this status itself
                    self._forwarding.answered()
                self._abandoned_ended()
        except Exception:
            self._caller.defect()

    def _take_headers(self, headers: ResponseHeaders, end: bool) -> None:
        caller, code = self._caller, headers.grpc_status
        if code:
            self._forwarding.error = headers.message
        if not caller.began:
            self._kept = None
            if end and code == DEADLINE_EXCEEDED:
                self.count_late()
            else:
                self._forwarding.answered()
            if headers.status != 200:
                self._fail(f"its response has HTTP status {headers.status}")
                return
        if not end:
            if not caller.began:
                caller.answer_began(STATUS_200 + headers.block)
        elif code is not None and not caller.began and self._is_lost(code, headers):
            caller.fail(self._forwarding.lost())
        elif self._has_error and code == 0:
            caller.problem = problem = no_whole_answer("its stream reported an error")
            count_problem(caller.shared.meter, problem, self._forwarding)
            caller.end(INTERNAL, headers.block)
        elif code is None:
            caller.end(UNKNOWN, headers.block + encode_header(b"grpc-status", b"2"), STATUS_200)
        else:
            caller.end(code, headers.block, STATUS_200)  # without messages, trailers are the whole response

    def _is_lost(self, code: int, headers: ResponseHeaders) -> bool:
        forwarding = self._forwarding
        return forwarding.may_be_lost() and forwarding.route.kind.reports_lost_over_grpc(code, headers.block)

    def data_received(self, data: bytes, end: bool) -> None:
        caller = self._caller
        if caller.done:
            self.connection.credit(self, len(data))
            if end:
                self._abandoned_ended()
            return
        try:
            if not caller.began:
                self._fail("its response has no headers")
                return
            caller.answer_data(data)
            if caller.unsent_bytes:
                self._uncredited += len(data)
            else:
                self.connection.credit(self, len(data))
            if self._streaming:
                self._caller.time.message_received()
                self._find_error(data)
            if end:
                self._fail("its response has no status")
        except Exception:
            caller.defect()

    def _find_error(self, data: bytes) -> None:
        """Note whether a message of the stream begins with the field `error_message`, which is the first field."""
        data = self._prefix + data
        at, size = self._rest, len(data)
        while at + PREFIX < size:
            self._has_error = self._has_error or data[at + PREFIX] == ERROR_MESSAGE
            at += PREFIX + int.from_bytes(data[at + 1 : at + PREFIX])
        self._rest, self._prefix = max(0, at - size), data[at:]

    def reset_received(self, code: int | None, processed: bool) -> None:
        """Retry elsewhere if the replica did not process the request. Otherwise fail the call."""
        if self._caller.done:
            self._abandoned_ended()
            return
        try:
            self._count_failure("reset" if processed else "refused")
            if processed or self._kept is None or not self._refused(self._kept):
                why = "it closed the connection" if code is None else f"it reset the call with HTTP/2 error code {code}"
                self._caller.fail(no_whole_answer(why))
        except Exception:
            self._caller.defect()

    # --- failures
    def count_late(self) -> None:
        """Count a late response as the replica's failure, unless only the caller's own deadline was shorter."""
        if self._caller.time.is_own:
            self._count_failure("timeout")

    def _fail(self, reason: str) -> None:
        self._count_failure("malformed")
        self.connection.reset(self.number, CANCEL)
        self._caller.fail(no_whole_answer(reason))

    def _count_failure(self, how: str) -> None:
        if (replica := self._forwarding.replica) is not None:
            self._forwarding.count_failure(replica, how)
