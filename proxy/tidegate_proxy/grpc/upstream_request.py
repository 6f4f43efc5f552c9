"""What goes with a call besides its messages: headers to its replica, a copy for the mirror, a record at its end."""

from functools import partial
from time import monotonic

from ..forwarding import Forwarding, call_record
from ..http2.headers import literal
from ..mirror import NO_COPY, AnyCopy
from ..pools import Pool
from ..telemetry.traces import Span
from .context import GrpcContext
from .metadata import RequestHeaders
from .methods import SERVICE, Method
from .response import Response
from .unary import send_mirrored

_LONGEST_TIMEOUT = 99_999_999
"""What the eight digits of `grpc-timeout` can say."""


_GRAVE = frozenset({2, 4, 13, 14, 15})
"""UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS: what somebody should look at."""


class UpstreamRequest:
    """Of one call, whichever replicas it goes to."""

    __slots__ = ("_context", "_copy", "_headers", "_method", "_request_id", "_span")

    def __init__(self, context: GrpcContext, headers: RequestHeaders, method: Method, request_id: bytes) -> None:
        self._context = context
        self._headers = headers
        self._method = method
        self._request_id = request_id
        self._span: Span | None = None
        self._copy: AnyCopy | None = None

    def span(self) -> Span | None:
        """Return the call's span, where the proxy makes any: the replica is told of it as its parent."""
        if self._span is None and (tracer := self._context.shared.tracer) is not None:
            self._span = tracer.begin(self._headers.trace_parents, self._headers.trace_states)
        return self._span

    def headers(self, pool: Pool, seconds: float) -> bytes:
        """Return what comes before the messages; the replica has so many seconds."""
        block = [self._context.upstreams.first_headers(pool, self._method.path)]
        if self._headers.accepts:
            block.append(self._headers.accepts)
        if seconds < float("inf"):
            left = min(_LONGEST_TIMEOUT, max(1, int(seconds * 1000)))
            block.append(literal(b"grpc-timeout", b"%dm" % left))
        block += (self._headers.for_replica(self.span()), literal(b"x-request-id", self._request_id))
        return b"".join(block)

    def mirror(self, forwarding: Forwarding, data: bytes | bytearray, whole: bool) -> None:
        """Keep what was sent for the candidate version, if this call is one that it gets."""
        if self._copy is None:
            route, mirror = forwarding.grant.route, self._context.shared.mirror
            assert route.mirror is not None
            if self._method.streams or self._method.action != "infer":
                self._copy = NO_COPY
            else:
                headers = self.headers(route.pool, mirror.seconds)
                send = partial(send_mirrored, self._context.upstreams, route.pool, headers, route.mirror.version)
                self._copy = mirror.begin(route, forwarding.version, forwarding.sequence is not None, send)
        self._copy.add(data, whole)

    def ended(self, response: Response, code: int, seconds: float, model: str | None, bytes_in: int) -> None:
        """Count, log and trace the end of the call with this status."""
        shared, forwarding = self._context.shared, response.forwarding
        if forwarding is not None:
            route = forwarding.grant.route
            if route.grpc_count is None:
                route.grpc_count = shared.meter.count(route.server, route.name, "grpc")
            route.grpc_count.ended(code, seconds, bytes_in, response.bytes_out)
        weight = 500 if code in _GRAVE else 400 if code else 200  # as HTTP would have it, for the log's sampling
        is_logged, span = shared.call_log.wants(weight, monotonic()), self.span()
        if not is_logged and (span is None or not span.sampled):
            return
        name, size = self._method.name, (bytes_in, response.bytes_out)
        record = call_record(
            forwarding, "grpc", response.request_id, name, (None, model), response.problem, seconds, size
        )
        if is_logged:
            shared.call_log.say(weight, record.log_fields(code))
        if shared.tracer is not None and span is not None and span.sampled:
            shared.tracer.grpc_ended(span, SERVICE, name, code, seconds, record.span_fields())
