"""One call of a caller, and its answer: decided, sent to a replica, and handed back as it comes.

The steps are those of `door/exchange.py`. A stream stays at one replica; each of its messages is decided anew.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..access.gate import Grant
from ..door.hall import Expiring, new_request_id
from ..mirror.copies import NO_COPY, AnyCopy
from ..mirror.sending import over_grpc
from ..problems import Kind, Problem
from ..upstream.pool import Pool, Replica
from .frames import CANCEL
from .heads import TWO_CREDENTIALS, AnswerHead, RequestHead, literal
from .intake import Asked, Intake
from .line import Line
from .methods import SERVICE, Method
from .problems import OK_HEAD, plain_trailers, trailers
from .questions import ToldError
from .stream import Stream

if TYPE_CHECKING:
    from ..seeing.traces import Span, Tracer
    from .switchboard import Switchboard

CLIENT_LEFT = 1
"""CANCELLED: what is counted for a caller who left; nobody receives it."""
UNKNOWN = 2
_GRAVE = frozenset({UNKNOWN, 4, 13, 14, 15})
"""DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS: what somebody should look at."""
MOST_KEPT = 256 * 1024
"""Bytes of a request that are kept until its answer begins, to send them to another replica if this one refuses."""
WIDE_WINDOW = 1024 * 1024
"""Bytes of a long message that may be on their way, once there is a replica for it."""
IDLE_STREAM_SECONDS = 600.0
"""Seconds that a stream may stay open while the caller asks for nothing."""
_LONGEST_TIMEOUT = 99_999_999
_MESSAGE_HEADERS = literal(b"te", b"trailers") + literal(b"content-type", b"application/grpc")


class Far(Stream):
    """The replica's side of a call."""

    def __init__(self, call: "Call") -> None:
        self.call = call

    def take_head(self, head: AnswerHead, end: bool) -> None:
        """Hand headers on."""
        self.call.answer_head(head, end)

    def take_data(self, data: bytes, end: bool) -> None:
        """Hand a part of a message on."""
        self.call.answer_data(data, end)

    def take_reset(self, code: int | None, processed: bool) -> None:
        """Tell the caller."""
        self.call.answer_failed(code, processed)

    def drained(self) -> None:
        """Let the caller send more."""
        self.call.sent()


class Call(Stream, Expiring):
    """Begins with the headers of a request; it is the caller's side of the call."""

    # What most calls never change costs them nothing here.
    done = False
    bytes_in = 0
    bytes_out = 0
    _grant: Grant | None = None
    _asked: Asked | None = None
    _first: Asked | None = None
    _replica: Replica | None = None
    _far: Far | None = None
    _tried: tuple[Replica, ...] = ()
    _task: asyncio.Task[None] | None = None
    _version: str | None = None
    _unread = 0
    _unpassed = 0
    _waiting = False
    _request_ended = False
    _placed = False
    _in_line = False
    _began = False
    _problem: str | None = None
    _copy: AnyCopy | None = None
    _span: "Span | None" = None
    _passed: bytes | None = None

    def __init__(self, board: "Switchboard", head: RequestHead, method: Method, started: float) -> None:
        self.board = board
        self.hall = board.hall
        self.head = head
        self.method = method
        self.started = started
        self.request_id = head.request_id or new_request_id()
        most = float(self.hall.settings.request_timeout_seconds)
        self._most_seconds = most
        self._last_deadline = float("inf") if head.seconds is None else started + head.seconds
        self.deadline = min(started + (IDLE_STREAM_SECONDS if method.streams else most), self._last_deadline)
        self._intake = Intake(self.hall.settings.body_limit_bytes, head.encoding, method.whole)
        self._kept: list[bytes | bytearray] | None = None if method.streams else []
        self._places = board.streams if method.streams else self.hall.places

    # --- from the caller
    def begin(self, end: bool) -> None:
        """Wait for the first message."""
        self.hall.under_way.add(self)
        if self.head.credentials > 1:
            self.fail(Problem(Kind.MALFORMED, TWO_CREDENTIALS))
        elif self.head.encoding not in (b"identity", b"gzip", b"deflate"):
            self.fail(Problem(Kind.METHOD, "Messages can be compressed with gzip or deflate."))
        elif end:
            self._request_ended = True
            self._go_on()

    def take_data(self, data: bytes, end: bool) -> None:
        """Take a part of a message."""
        if self.done:
            return
        self.bytes_in += len(data)
        self._unread += len(data)
        self._request_ended = end
        try:
            if data:
                self._intake.feed(data)
            if not self._waiting:
                self._work()
        except Problem as problem:
            self.fail(problem)

    def take_head(self, _: RequestHead, end: bool) -> None:
        """Take what follows the last message: callers have nothing to say there."""
        if end:
            self.take_data(b"", True)

    def take_reset(self, _code: int | None, _processed: bool) -> None:
        """End it: the caller has left. What a replica does for it is dropped."""
        if not self.done:
            self._drop_far()
            self._finish(CLIENT_LEFT)

    def drained(self) -> None:
        """Let the answer come: the caller has taken what there was."""
        if self.done:
            self.hall.under_way.discard(self)
        if self._far is not None and self._unpassed:
            self._far.link.credit(self._far, self._unpassed)
            self._unpassed = 0

    def expire(self) -> None:
        """End it: its time is up."""
        if self.done:  # the caller does not take the rest of its answer
            self.hall.under_way.discard(self)
            self.link.reset(self.number, CANCEL)
            return
        if self.method.streams and self.deadline < self._last_deadline:
            self.fail(Problem(Kind.DEADLINE, "Nothing has moved on this stream for too long."))
        else:
            self.fail(Problem(Kind.DEADLINE, f"There was no answer within {self.deadline - self.started:g} s."))

    def leave(self) -> None:
        """End it: the proxy waits for it no longer."""
        if self._far is None:
            self.fail(Problem(Kind.BUSY, "The proxy is stopping; another one takes the call.", 0.0))
        else:
            self.fail(
                Problem(
                    Kind.UPSTREAM,
                    "The proxy is stopping and can wait no longer. The inference server may have done the work; "
                    "send the request again only if that does no harm.",
                )
            )

    # --- deciding
    def _work(self) -> None:
        """Go on with what has come, as far as that goes without waiting; raises Problem."""
        while not self._waiting and not self.done:
            if self._asked is None:
                asked = self._intake.asked()
                if asked is None:
                    break
                self._asked = asked
                self._decide(asked)
            elif not self._pass_on():
                break
        if not self._waiting and not self.done:
            self._end_request()

    def _decide(self, asked: Asked) -> None:
        self._first = self._first or asked
        self._waiting = True  # until it is known, and there is a replica
        if self.method.streams:
            self.deadline = min(monotonic() + self._most_seconds, self._last_deadline)
        server = self.board.server_of(self.head)
        if not asked.model:
            if self.method.name != "ModelStatistics":
                raise Problem(Kind.MALFORMED, "The message names no model.")
            self._later(self._all_statistics(server))
            return
        grant = self.hall.gate.known(self.head.credential, server, asked.model, self.method.action)
        if grant is None:
            self._later(self._ask(asked, server))
        else:
            self._granted(grant, asked)

    async def _ask(self, asked: Asked, server: str | None) -> None:
        grant = await self.hall.gate.ask(self.head.credential, server, asked.model, self.method.action)
        self._granted(grant, asked)

    async def _all_statistics(self, server: str | None) -> None:
        answer = await self.board.questions.statistics(self.head.credential, server, self.deadline - monotonic())
        self.link.send_head(self, OK_HEAD + self._said())
        self.link.send_data(self, answer)
        self._end(plain_trailers(0), 0)

    def _granted(self, grant: Grant, asked: Asked) -> None:
        before, self._grant = self._grant, grant
        bucket = grant.bucket
        if bucket is not None and (wait := bucket.take(monotonic())):
            rate = f"{bucket.rate * 60:.4g} requests a minute, {bucket.burst:g} at once"
            raise Problem(Kind.RATE_LIMITED, f"You may send this model {rate} through this proxy.", wait)
        # One sequence has one version, and so has one stream.
        sticky = self.head.sticky or asked.sequence or (self.request_id if self.method.streams else None)
        self._version = grant.route.version(asked.version, sticky)
        if before is not None:
            if _place(before.route.pool) != _place(grant.route.pool):
                raise Problem(Kind.MALFORMED, "A stream's models are all of one server and pool: open another stream.")
            self._waiting = False
        elif self._places.take():
            self.placed()
        elif self._places.wait(self):
            self._in_line = True
        else:
            raise Problem(Kind.BUSY, "Too many requests wait already.", 1.0)

    def placed(self) -> None:
        """Go on: there is a place."""
        in_line, self._in_line = self._in_line, False
        self._placed = True
        assert self._grant is not None
        pool = self._grant.route.pool
        replica = self._pick(pool)
        if replica is not None and (line := self.board.lines(pool, replica).take()) is not None:
            self._send_head(replica, line)
            if in_line:
                self._go_on()
        else:
            self._later(self._connect(replica))

    def _pick(self, pool: Pool) -> Replica | None:
        asked = self._first
        assert asked is not None
        if asked.sequence:
            return pool.pick_for(asked.model.encode() + b"\0" + asked.sequence, monotonic(), self._tried)
        return pool.pick(monotonic(), self._tried)

    async def _connect(self, replica: Replica | None) -> None:
        assert self._grant is not None
        pool = self._grant.route.pool
        while replica is not None:
            try:
                line = await self.board.lines(pool, replica).connect(self.hall.settings.connect_timeout_seconds)
            except OSError as error:  # a time-out too: nothing was sent, so another replica may have it
                self._count_failure(replica, type(error).__name__)
                replica = self._other(replica)
                continue
            self._send_head(replica, line)
            return
        where = f"{pool.server}/{pool.name}"
        why = f"No replica of {where} takes connections." if self._tried else f"No replica of {where} is there."
        raise Problem(Kind.BUSY, why, max(0.1, pool.retry_in(monotonic())))

    # --- to the replica
    def _send_head(self, replica: Replica, line: Line) -> None:
        assert self._grant is not None
        replica.in_flight += 1
        replica.requests += 1
        self._grant.route.pool.retries.sent()
        replica.breaker.sent()
        self._replica = replica
        self._far = far = Far(self)
        until = self._last_deadline if self.method.streams else self.deadline
        line.open(far, self._headers(self._grant.route.pool, until - monotonic()))
        self._waiting = False
        if self._intake.missing > self.link.stream_window // 2:
            self.link.widen(self, WIDE_WINDOW)

    def _headers(self, pool: Pool, seconds: float) -> bytes:
        """Return what comes before the messages; the replica has so many seconds."""
        block = [self.board.first_headers(pool, self.method.path), _MESSAGE_HEADERS]
        if self.head.accepts:
            block.append(self.head.accepts)
        if seconds < float("inf"):
            left = min(_LONGEST_TIMEOUT, max(1, int(seconds * 1000)))
            block.append(literal(b"grpc-timeout", b"%dm" % left))
        passed = self.head.passed if self.hall.tracer is None else self._traced(self.hall.tracer)
        block += (passed, literal(b"x-request-id", self.request_id))
        return b"".join(block)

    def _traced(self, tracer: "Tracer") -> bytes:
        """Return the headers that go on to the replica: where the call is sampled, its parent is the proxy's span."""
        if self._passed is None:
            self._span, self._passed = tracer.over_grpc(self.head.passed)
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
            route, copies = grant.route, self.hall.copies
            assert route.mirror is not None
            if self.method.streams or self.method.action != "infer":
                self._copy = NO_COPY
            else:
                headers = self._headers(route.pool, copies.seconds)
                send = partial(over_grpc, self.board, route.pool, headers, route.mirror.version)
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
            self._replica.breaker.succeeded()
            if head.status != 200:
                self._fail_upstream(f"it answered with HTTP status {head.status}")
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
        if not processed and self._kept is not None and (other := self._other(replica)) is not None:
            self._release_replica()
            self._waiting = True
            self._later(self._again(other, self._kept))
            return
        self._fail_upstream(
            "it ended the connection" if code is None else f"it gave the call up with code {code}", False
        )

    async def _again(self, replica: Replica, kept: list[bytes | bytearray]) -> None:
        await self._connect(replica)
        far = self._far
        assert far is not None
        for data in kept:
            far.link.send_data(far, data)

    def _other(self, failed: Replica) -> Replica | None:
        """Return another replica to send the request to, if there is one, and retries are not used up."""
        assert self._grant is not None
        self._tried += (failed,)
        other = self._pick(self._grant.route.pool)
        return other if other is not None and self._grant.route.pool.retries.take(monotonic()) else None

    def _fail_upstream(self, reason: str, count: bool = True) -> None:
        if count and self._replica is not None:
            self._count_failure(self._replica, "malformed")
        self.fail(
            Problem(
                Kind.UPSTREAM,
                f"The inference server gave no whole answer: {reason}. It may have done the work; "
                "send the request again only if that does no harm.",
            )
        )

    # --- the end
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
        self.hall.meter.problems[self._problem] += 1
        self._drop_far()
        block = trailers(problem)
        self._end(block if self._began else OK_HEAD + block + self._said(), problem.kind.grpc_status)

    def _end(self, block: bytes, code: int) -> None:
        self._drop_far()
        self.link.send_head(self, block, True)
        self._finish(code)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self.link.loop.create_task(self._go(work))

    async def _go(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            if not self._waiting:
                self._work()
        except Problem as problem:
            self.fail(problem)
        except ToldError as told:
            self._end(OK_HEAD + told.block + self._said(), told.code)
        except Exception:
            self.board.logger.exception("request %s met a defect", self.request_id.decode())
            self.fail(Problem(Kind.INTERNAL, "It is in the log, under this request's id."))

    def _go_on(self) -> None:
        try:
            self._work()
        except Problem as problem:
            self.fail(problem)

    def _count_failure(self, replica: Replica, how: str) -> None:
        replica.failures += 1
        replica.breaker.failed(monotonic())
        assert self._grant is not None
        self.hall.meter.upstream_errors[self._grant.route.server, how] += 1

    def _drop_far(self) -> None:
        far, self._far = self._far, None
        if far is not None and not (far.local_closed and far.remote_closed):
            far.link.reset(far.number, CANCEL)
            if not self._began and self._replica is not None:
                self._replica.breaker.given_up()

    def _release_replica(self) -> None:
        if self._replica is not None:
            self._replica.in_flight -= 1
            self._replica = None

    def _finish(self, code: int) -> None:
        self.done = True
        self._kept = None
        if not self.unsent_bytes:
            self.hall.under_way.discard(self)
        task = self._task
        if task is not None and task is not asyncio.current_task(self.link.loop):
            task.cancel()
        if self._in_line:
            self._places.leave_line(self)
        if self._placed:
            self._places.leave()
        now = monotonic()
        seconds = now - self.started
        if self._grant is not None:
            route = self._grant.route
            count = route.grpc_count
            if count is None:
                count = route.grpc_count = self.hall.meter.count(route.server, route.name, "grpc")
            count.ended(code, seconds, self.bytes_in, self.bytes_out)
        if self.hall.tracer is not None:
            self._trace(self.hall.tracer, code, seconds)
        weight = 500 if code in _GRAVE else 400 if code else 200  # as HTTP would have it, for the log's sampling
        if self.hall.call_log.wants(weight, now):
            self._log(weight, code, seconds)
        self._release_replica()

    def _trace(self, tracer: "Tracer", code: int, seconds: float) -> None:
        grant, asked = self._grant, self._first
        span = self._span or tracer.over_grpc(self.head.passed)[0]
        if span.sampled:
            more = {
                "error.type": self._problem,
                "tidegate.server": grant.route.server if grant else None,
                "tidegate.model": asked.model if asked else None,
                "tidegate.version": self._version,
                "tidegate.replica": self._replica.name if self._replica else None,
                "tidegate.request_id": self.request_id.decode(),
            }
            tracer.grpc_ended(span, SERVICE, self.method.name, code, seconds, more)

    def _log(self, weight: int, code: int, seconds: float) -> None:
        grant, asked = self._grant, self._first
        call = {
            "protocol": "grpc",
            "requestId": self.request_id.decode(),
            "verb": self.method.name,
            "server": grant.route.server if grant else None,
            "model": asked.model if asked else None,
            "version": self._version,
            "status": code,
            "problem": self._problem,
            "principal": grant.identity.principal.name if grant else None,
            "replica": self._replica.name if self._replica else None,
            "seconds": round(seconds, 6),
            "bytesIn": self.bytes_in,
            "bytesOut": self.bytes_out,
        }
        self.hall.call_log.say(weight, {name: value for name, value in call.items() if value is not None})


def _place(pool: Pool) -> tuple[str, str]:
    return pool.server, pool.name
