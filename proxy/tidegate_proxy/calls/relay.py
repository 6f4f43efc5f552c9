"""A call at its replica: the messages as they are sent on, and the answer as it is handed back to the caller."""

from collections.abc import Coroutine, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..concurrency import InFlightCount
from ..forwarded import Forwarded
from ..forwarding import no_whole_answer
from ..mirror import NO_COPY
from ..pools import Pool
from ..problems import Kind, Problem
from ..request_ids import new_request_id
from ..residency.leases import Lease
from ..residency.saying import AGAIN_SECONDS, LOST
from ..telemetry.records import CallRecord
from ..upstream.replica import Replica
from .far import Far
from .frames import CANCEL
from .heads import AnswerHead, RequestHead, literal
from .intake import Asked, Intake
from .line import Line
from .methods import SERVICE, Method
from .problems import OK_HEAD, plain_trailers, trailers
from .stream import Stream
from .unary import CALL_HEADERS, TimeLimit, send_mirrored

if TYPE_CHECKING:
    from ..telemetry.traces import Tracer
    from .switchboard import Switchboard

UNKNOWN = 2
DEADLINE_EXCEEDED = 4
_LOST_CODES = frozenset({5, 14})
"""NOT_FOUND, UNAVAILABLE: what Triton says of a model that it has not loaded."""
MOST_KEPT = 256 * 1024
"""Bytes of a request that are kept until its answer begins, to send them to another replica if this one refuses."""
WIDE_WINDOW = 1024 * 1024
"""Bytes of a long message that may be on their way, once there is a replica for it."""
IDLE_STREAM_SECONDS = 600.0
"""Seconds that a stream may stay open while the caller asks for nothing."""
_LONGEST_TIMEOUT = 99_999_999


class Relay(Stream, Forwarded[Line]):
    """What comes and goes, as bytes; the call decides where to, and what is read of the caller."""

    # What most calls never change costs them nothing here.
    done = False
    bytes_in = 0
    bytes_out = 0
    _asked: Asked | None = None
    """What the message under way asks for."""
    _first: Asked | None = None
    """What the first message asked for."""
    _more_leases: tuple[Lease, ...] = ()
    """On the other models of a stream."""
    _again_sent: Sequence[bytes | bytearray] = ()
    """What was sent to a replica that refused it, for the next one."""
    _far: Far | None = None
    _unread = 0
    """Bytes that the caller has no credit for yet."""
    _unpassed = 0
    """Bytes that the replica has no credit for yet."""
    _waiting = False
    """Whether nothing is sent on before something else has come."""
    _request_ended = False
    _began = False
    """Whether the answer has begun."""

    def __init__(self, board: "Switchboard", head: RequestHead, method: Method, started: float) -> None:
        self.board = board
        self.shared = board.shared
        self.head = head
        self.method = method
        self.started = started
        self.request_id = head.request_id or new_request_id()
        most = float(self.shared.settings.request_timeout_seconds)
        self._most_seconds = most
        self._last_deadline = float("inf") if head.seconds is None else started + head.seconds
        self.deadline = min(started + (IDLE_STREAM_SECONDS if method.streams else most), self._last_deadline)
        self._intake = Intake(self.shared.settings.body_limit_bytes, head.encoding, method.whole)
        self._kept: list[bytes | bytearray] | None = None if method.streams else []
        self._limiter = board.streams if method.streams else self.shared.limiter
        self._counts: tuple[InFlightCount, InFlightCount]

    @property
    def _model(self) -> str:
        assert self._first is not None
        return self._first.model

    @property
    def _limit(self) -> TimeLimit:
        own = self.head.seconds is None or self.head.seconds >= self._most_seconds
        return TimeLimit(self.deadline - monotonic(), own)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with work that waits for something."""
        raise NotImplementedError

    def _finish(self, code: int) -> None:
        """Give back and count everything: it has ended."""
        raise NotImplementedError

    # --- to the replica
    async def _connection_to(self, replica: Replica) -> Line:
        assert self._grant is not None
        lines = self.board.upstreams.connections(self._grant.route.pool, replica)
        return await lines.connect(self.board.upstreams.connect_seconds)

    def _send_head(self, replica: Replica, line: Line) -> None:
        assert self._grant is not None
        replica.in_flight += 1
        replica.requests += 1
        if self._lease is not None:
            self._lease.enter()
        self._grant.route.pool.retries.sent()
        self._replica = replica
        self._far = far = Far(self)
        until = self._last_deadline if self.method.streams else self.deadline
        line.open(far, self._headers(self._grant.route.pool, until - monotonic()))
        for data in self._again_sent:
            line.send_data(far, data)
        self._waiting = False
        if self._intake.missing > self.link.stream_window // 2:
            self.link.widen(self, WIDE_WINDOW)

    def _headers(self, pool: Pool, seconds: float) -> bytes:
        """Return what comes before the messages; the replica has so many seconds."""
        block = [self.board.upstreams.first_headers(pool, self.method.path), CALL_HEADERS]
        if self.head.accepts:
            block.append(self.head.accepts)
        if seconds < float("inf"):
            left = min(_LONGEST_TIMEOUT, max(1, int(seconds * 1000)))
            block.append(literal(b"grpc-timeout", b"%dm" % left))
        passed = (
            self.head.passed + self.head.context if self.shared.tracer is None else self._traced(self.shared.tracer)
        )
        block += (passed, literal(b"x-request-id", self.request_id))
        return b"".join(block)

    def _traced(self, tracer: "Tracer") -> bytes:
        """Return the headers that go on to the replica: where the call is sampled, its parent is the proxy's span."""
        if self._passed is None:
            self._span, self._passed = tracer.over_grpc(self.head)
        return self._passed

    def _pass_on(self) -> bool:
        """Send on what there is of the message under way; return whether there may be more to do."""
        data = self._intake.passed(self._version)
        whole = self._intake.between
        if whole:
            self._asked = None
        if data:
            self._send(data, whole and self._request_ended and self._intake.idle)
            if self._grant.route.mirror is not None:  # type: ignore[union-attr]  # what is passed on was granted
                self._keep_copy(data, whole)
        return whole

    def _keep_copy(self, data: bytes | bytearray, whole: bool) -> None:
        """Keep what was sent for the candidate, if this call is one that it gets."""
        grant, asked = self._grant, self._first
        assert grant is not None
        assert asked is not None
        if self._copy is None:
            route, copies = grant.route, self.shared.mirror
            assert route.mirror is not None
            if self.method.streams or self.method.action != "infer":
                self._copy = NO_COPY
            else:
                headers = self._headers(route.pool, copies.seconds)
                send = partial(send_mirrored, self.board.upstreams, route.pool, headers, route.mirror.version)
                self._copy = copies.begin(route, self._version, bool(asked.sequence), send)
        self._copy.add(data, whole)

    def _send(self, data: bytes | bytearray, end: bool) -> None:
        far = self._far
        assert far is not None
        if self._kept is not None:
            self._kept.append(data)
            if self.bytes_in > MOST_KEPT:
                self._kept = None
        far.link.send_data(far, data, end)
        if self.method.streams:
            self.deadline = min(monotonic() + self._most_seconds, self._last_deadline)

    def _end_request(self) -> None:
        """Give credit for what is gone, and hand the request's end on."""
        far = self._far
        if far is None or not far.unsent_bytes:
            self.sent()
        if not self._request_ended:
            return
        if not self._intake.idle:
            raise Problem(Kind.MALFORMED, "The request ends within a message.")
        if far is not None:
            if not far.local_closed:
                far.link.send_data(far, b"", True)
        elif self._grant is None:
            if self.method.streams:
                self._end(OK_HEAD + plain_trailers(0) + self._said(), 0)
            else:
                raise Problem(Kind.MALFORMED, "The request has no message.")

    def sent(self) -> None:
        """Let the caller send as much again as is gone."""
        if self._unread and not self._waiting and not self.remote_closed:
            self.link.credit(self, self._unread)
            self._unread = 0

    # --- from the replica
    def answer_head(self, head: AnswerHead, end: bool) -> None:
        """Hand headers on: those before the first message, or those that end the answer."""
        if self.done:
            return
        if not self._began:
            self._kept = None
            assert self._replica is not None
            if end and head.grpc_status == DEADLINE_EXCEEDED:
                self._count_late(self._replica)  # the replica's library says so, whatever else there is behind it
            else:
                self._replica.breaker.succeeded(self._trial)
            if head.status != 200:
                self._fail_upstream(f"it answered with HTTP status {head.status}")
                return
        unsaid = end and not self._began and self._lease is not None
        if unsaid and head.grpc_status in _LOST_CODES and LOST.search(head.block) and self._has_version():
            self._lost_model()
            return
        if end:
            code = UNKNOWN if head.grpc_status is None else head.grpc_status
            self._end_answer(
                head.block if head.grpc_status is not None else head.block + literal(b"grpc-status", b"2"), code
            )
        elif not self._began:
            self._began = True
            self.link.send_head(self, b"\x88" + head.block + self._said())

    def answer_data(self, data: bytes, end: bool) -> None:
        """Hand a part of a message on."""
        if self.done:
            return
        if not self._began:
            self._fail_upstream("its answer has no headers")
            return
        self.bytes_out += len(data)
        self.link.send_data(self, data)
        far = self._far
        assert far is not None
        if self.unsent_bytes:
            self._unpassed += len(data)
        else:
            far.link.credit(far, len(data))
        if self.method.streams:
            self.deadline = min(monotonic() + max(self._most_seconds, IDLE_STREAM_SECONDS), self._last_deadline)
        if end:
            self._fail_upstream("its answer has no status")

    def answer_failed(self, code: int | None, processed: bool) -> None:
        """Tell the caller, as far as that is still possible; or try another replica, where this one did nothing."""
        if self.done:
            return
        replica = self._replica
        assert replica is not None
        self._far = None
        self._count_failure(replica, "refused" if not processed else "reset")
        if not processed and self._kept is not None:
            leased = self._lease is not None
            self._release_replica()  # first, for another replica has another lease
            if (other := self._other(replica)) is not None:
                self._waiting = True
                self._later(self._again(other, self._kept))
                return
            if leased:
                self.fail(Problem(Kind.BUSY, f"{replica.name} takes no more calls; nothing was done.", AGAIN_SECONDS))
                return
        self._fail_upstream(
            "it ended the connection" if code is None else f"it gave the call up with code {code}", False
        )

    async def _again(self, replica: Replica, kept: list[bytes | bytearray]) -> None:
        self._again_sent = kept
        await self._connect(replica)

    def _fail_upstream(self, reason: str, count: bool = True) -> None:
        if count and self._replica is not None:
            self._count_failure(self._replica, "malformed")
        self.fail(no_whole_answer(reason))

    def _count_late(self, replica: Replica) -> None:
        """Count an answer that did not come in time, unless only the caller would wait no longer."""
        if self._limit.own:
            self._count_failure(replica, "timeout")

    def _drop_far(self) -> None:
        far, self._far = self._far, None
        if far is not None and not (far.local_closed and far.remote_closed):
            far.link.reset(far.number, CANCEL)

    def _release_replica(self) -> None:
        now = monotonic()
        for lease in self._more_leases:
            lease.leave(now)
        self._more_leases = ()
        super()._release_replica()

    # --- to the caller
    def _said(self) -> bytes:
        said = literal(b"x-request-id", self.request_id)
        if self._version is not None:
            said += literal(b"tidegate-model-version", self._version.encode())
        return said

    def _end_answer(self, block: bytes, code: int) -> None:
        if self._began:
            self._end(block, code)
        else:
            self._end(b"\x88" + block + self._said(), code)

    def fail(self, problem: Problem) -> None:
        """End it with a problem."""
        if self.done:
            return
        self._problem = problem.kind.word
        self.shared.meter.problems[self._problem] += 1
        self._drop_far()
        block = trailers(problem)
        self._end(block if self._began else OK_HEAD + block + self._said(), problem.kind.grpc_status)

    def defect(self) -> None:
        """End it, and nothing else on its connections, because the proxy has a defect: the one that is handled now."""
        self.board.logger.exception("request %s met a defect", self.request_id.decode())
        self.fail(Problem(Kind.INTERNAL, "It is in the log, under this request's id."))

    def _end(self, block: bytes, code: int) -> None:
        self._drop_far()
        self.link.send_head(self, block, True)
        self._finish(code)

    # --- for logs and traces
    def _told(self, seconds: float) -> CallRecord:
        model = self._first.model if self._first else None
        return self._told_as("grpc", self.method.name, (None, model), seconds, (self.bytes_in, self.bytes_out))

    def _trace(self, tracer: "Tracer", code: int, seconds: float) -> None:
        span = self._span or tracer.over_grpc(self.head)[0]
        if span.sampled:
            more = self._told(seconds).span_fields()
            tracer.grpc_ended(span, SERVICE, self.method.name, code, seconds, more)
