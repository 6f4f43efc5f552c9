"""One call over HTTP: decided, sent to a replica, and its answer handed back as it comes.

`start` → `_decide` → `_granted` → `_go_to_replica` → `_send`; its forwarding hands the answer back → `finish`. When all
is at hand (a known credential, a slot, an idle connection) a call runs through without a task of its own. Whatever has
to be waited for is awaited in one task, and then the same steps go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic

from ..access.identity import Asked, Grant, Identity
from ..access.web_client import SENDER
from ..forwarding import call_record, count_problem, no_whole_answer
from ..kinds import KINDS, as_told
from ..problems import Problem, ProblemType, no_answer, other_protocol, still_loading
from ..shared_state import SharedState
from ..targets import Target
from ..telemetry.records import CLIENT_LEFT
from ..telemetry.traces import Span, http_parent
from ..upstream.connection import Connection
from ..upstream.replica import Replica
from .answers import problem_answer, whole_answer
from .body import MOST_DRAINED, MOST_UNSENT, PASSING_BYTES
from .caller import Caller
from .head import HeadedRequest
from .leg import HttpForwarding

LONG_HEAD = 4096  # Bytes of headers that go on; more are counted as held.
log = logging.getLogger(__name__)


class HttpRequest(HeadedRequest):
    """Begins when the request's head is there. Its caller hands it the body; a connection hands it the answer."""

    __slots__ = ("_own_bytes", "_problem", "_size_before", "_span", "_task", "_whole", "forwarding")

    def __init__(self, caller: Caller, shared: SharedState, target: Target, started: float) -> None:
        self.caller = caller
        self.target = target
        self.shared = shared
        self.started = started
        self.response_complete = False
        self.forwarding: HttpForwarding | None = None  # What it holds, once it is granted.
        self._task: asyncio.Task[None] | None = None
        self._problem: Problem | None = None  # What ended it, if it is one.
        self._whole: asyncio.Future[None] | None = None  # Done when the body is whole, if that is waited for.
        self._span: Span | None = None  # Where calls are traced.
        self._own_bytes = 0  # Of an answer's body that the proxy wrote itself.
        self._size_before = 0  # Bytes of the answer when its time was last prolonged.

    # --- from the caller
    def start(self) -> None:
        """Decide and send, as far as that goes without waiting."""
        self.shared.open_calls.add(self)
        if self.shared.tracer is not None:
            self._span, self.passed = self.shared.tracer.over_http(self.passed)
        target, length = self.target, self.body.length
        try:
            if self.refusal is not None:
                self.keep_alive = False
                raise self.refusal
            if self.method != target.method:
                allow = target.method.decode()
                raise Problem(ProblemType.METHOD, f"This address takes {allow}.", allow=allow)
            if length is not None and length > self.shared.body_limit_bytes:
                raise self.body.too_long()
            if len(self.passed) > LONG_HEAD:
                self.body.book_head(len(self.passed))
            if target.in_body:
                self._find_sender()
            else:
                self._decide(target)
        except Exception as error:
            self._end_with(error)

    def refuse(self, problem: Problem) -> None:
        """End it, in its turn, because its body is none."""
        if self.caller.is_active(self):
            self.fail(problem)
        elif self.refusal is None:
            self.refusal = problem

    def take_body(self, data: bytes) -> None:
        """Take a part of the request's body."""
        if self.response_complete:
            return
        body, forwarding = self.body, self.forwarding
        size = body.received + len(data)
        is_sent = forwarding is not None and forwarding.connection is not None
        if not body.chunked and (is_sent or size <= PASSING_BYTES):
            body.received = size
            body.parts.append(data)
        elif (problem := body.take(data, is_sent)) is not None:
            self.refuse(problem)

    def end_body(self) -> None:
        """Learn that the request is whole."""
        self.body.complete = True
        if self.response_complete:
            return
        if self.body.chunked:
            self.body.end_chunks()
        if self._whole is not None and not self._whole.done():
            self._whole.set_result(None)
        elif self.target.in_body and self.body.gathers:
            try:
                self._open_body()
            except Exception as error:
                self._end_with(error)

    def _ask_for_body(self) -> None:
        if self.expects_continue and not self.body.complete:
            self.caller.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False

    def abandon(self) -> None:
        """End it: the caller has left. What a replica does for it is dropped."""
        if not self.response_complete:
            if self.forwarding is not None:
                self.forwarding.drop()
            self.finish(CLIENT_LEFT, monotonic())

    def expire(self) -> None:
        """End it: its time is up. A stream that moves goes on, unless the caller said when it is to end."""
        most = self.shared.call_seconds
        bound_is_own = self.seconds >= most
        forwarding = self.forwarding
        size = forwarding.size if forwarding is not None and forwarding.began else 0
        if self.target.streams and bound_is_own and size > self._size_before:
            self._size_before = size
            self.deadline = monotonic() + most
            return
        may_blame = bound_is_own and (self.body.complete or self.body.is_held)
        if may_blame and forwarding is not None and forwarding.replica is not None and not forwarding.began:
            forwarding.count_failure(forwarding.replica, "timeout")
        seconds = self.deadline - self.started
        is_loading = forwarding is not None and forwarding.loading
        self.fail(still_loading(seconds) if is_loading else Problem(ProblemType.DEADLINE, no_answer(seconds)))

    def replica_silent(self) -> None:
        """Go elsewhere, if it only looks; else keep no other from its place: it may still be answered."""
        forwarding = self.forwarding
        assert forwarding is not None
        assert forwarding.replica is not None
        if forwarding.looks:
            forwarding.drop()
            self.failed_at(forwarding.replica, "there is no answer")
        else:
            forwarding.release_slot()

    # --- deciding
    def _find_sender(self) -> None:
        """Find out who sends it: only then is a body read that says what is asked."""
        identity = self.shared.authorizer.remembered(self.credential)
        if identity is None:
            self._later(self._identify)
        else:
            self._let_body_come(identity)

    def _decide(self, target: Target) -> None:
        kind = KINDS[target.kind]
        grant = self.shared.authorizer.known(self.credential, target.server, target.model, target.action, kind)
        if grant is None:
            self._later(self._ask, (target.server, target.model, target.action, kind))
        else:
            self._granted(grant)

    async def _ask(self, asked: Asked) -> None:
        self._granted(await self.shared.authorizer.ask(self.credential, *asked))

    async def _identify(self) -> None:
        self._let_body_come(await self.shared.authorizer.identify(self.credential))

    def _let_body_come(self, identity: Identity) -> None:
        """Read a body that says what is asked, now that its sender is known."""
        body = self.body
        body.known_as(identity.in_flight)
        body.gathers = True
        if body.is_held:
            body.hold(False)
        if body.complete:  # it waited behind another request, or for its sender to be known
            self._open_body()
        elif self.expects_continue:
            self._ask_for_body()

    def _open_body(self) -> None:
        """Read what is asked in the body, and go on as for a request to the model's own address."""
        if self.body.received > MOST_UNSENT:
            self._later(self._open_long_body)
        else:
            target = self.target
            self.target, found = KINDS[target.kind].open_body(target, self.body.whole())
            self.body.opened(found)
            self._decide(self.target)

    async def _open_long_body(self) -> None:
        """Do the same in a thread, one body after the other, while other calls go on."""
        kind, target, body = KINDS[self.target.kind], self.target, self.body
        loop = asyncio.get_running_loop()
        opened = loop.run_in_executor(self.shared.reader, lambda: kind.open_body(target, body.whole()))
        self.target, found = await opened
        body.opened(found)
        self._decide(self.target)

    def _granted(self, grant: Grant) -> None:
        route, target, body = grant.route, self.target, self.body
        if route.kind is not KINDS[target.kind]:
            raise other_protocol(route.server)
        if route.names and (version := route.names.get(target.model)) is not None:
            self.target = target = replace(target, version=version)
        if self.expects_continue:
            self._ask_for_body()
        shared, caller = self.shared, grant.identity.in_flight
        if body.booking is None:
            body.holder = caller
        else:
            body.known_as(caller)
        if self.caller.is_unknown:
            self.caller.known_as(caller)
        if grant.tokens is not None and target.asks_for_usage is None:
            why = "Where tokens are limited, `stream` is true or false, and `stream_options` one short object."
            raise Problem(ProblemType.MALFORMED, why)
        self.forwarding = forwarding = HttpForwarding(
            self, shared, grant, route.pool, shared.limiter, route.in_flight, caller, target.action == "inspect"
        )
        grant.count(self.started)
        is_leased = route.pool.leases is not None
        if is_leased and target.looks_only:
            self._later(self._look, forwarding)
        elif not (
            (not is_leased or forwarding.find_lease())
            and not (target.may_be_of_sequence and route.must_know_sequence(target.version))
            and forwarding.find_version(target.version, self.sticky)
        ):
            self._later(self._prepare, forwarding)
        elif forwarding.acquire_slot():
            self._go_to_replica(forwarding, False)

    async def _prepare(self, forwarding: HttpForwarding) -> None:
        """Wait for what is not at hand: the model's lease, the request's sequence, the version; then take a slot."""
        route, target = forwarding.grant.route, self.target
        if not forwarding.find_lease():
            await forwarding.acquire_lease(self.request_id, http_parent(self.passed))
        if target.may_be_of_sequence and self._whole is None and route.must_know_sequence(target.version):
            await self._find_sequence(forwarding)
        if not forwarding.find_version(target.version, self.sticky):
            await forwarding.await_version()
        if forwarding.acquire_slot():
            self._go_to_replica(forwarding, False)

    async def _find_sequence(self, forwarding: HttpForwarding) -> None:
        """Learn which sequence it is of, unless the model knows none; it may know them where that cannot be learned."""
        route = forwarding.grant.route
        if await route.sequences.find(self.shared.settings.connect_timeout_seconds) is False:
            return
        self._whole = asyncio.get_running_loop().create_future()
        if self.body.complete:
            self._whole.set_result(None)
        self.body.let_come()
        await self._whole
        self.body.choose(self.target.model, None)
        forwarding.sequence = await route.kind.sequence_of(self.passed, self.body.unpacked)
        self.body.drop_unpacked()

    async def _look(self, forwarding: HttpForwarding) -> None:
        """Answer what is only looked at: that loads no model, and keeps none."""
        route = forwarding.grant.route
        own_bound = self.seconds >= self.shared.call_seconds
        answer = await route.kind.look(self.target, route.pool, self.deadline - monotonic(), own_bound)
        self._say(answer.status, answer.media_type, as_told(answer, route.kind).body)

    # --- to the replica
    def admitted(self) -> None:
        """Go on: there is a slot."""
        assert self.forwarding is not None
        self.forwarding.leave_queue()
        try:
            self._go_to_replica(self.forwarding, True)
            self.flush_request()
        except Exception as error:
            self._end_with(error)

    def _go_to_replica(self, forwarding: HttpForwarding, waited: bool) -> None:
        now = monotonic()
        replica = forwarding.pick(now, waited)
        if replica is not None:
            door = replica if forwarding.lease is None else forwarding.door(replica)
            if (connection := door.take(now)) is not None:
                self._send(forwarding, replica, connection)
                return
        self._later(self._connect, forwarding, replica)

    async def _connect(self, forwarding: HttpForwarding, replica: Replica | None) -> None:
        found = await forwarding.connect(
            replica, forwarding.connection_to, lambda each, unused: forwarding.door(each).give(unused, monotonic())
        )
        if found is None:
            await self._prepare(forwarding)
        else:
            self._send(forwarding, *found)

    def _send(self, forwarding: HttpForwarding, replica: Replica, connection: Connection) -> None:
        forwarding.send(replica, connection)
        if self.body.is_held:
            self.body.hold(False)
        if self._task is not None:  # otherwise the caller's connection flushes when it has read all that is at hand
            forwarding.flush_request()

    def flush_request(self) -> None:
        """Send on what has come so far, or book it: no more is at hand."""
        forwarding, body = self.forwarding, self.body
        if forwarding is not None and forwarding.connection is not None:
            forwarding.flush_request()
        elif body.received and body.booking is None and not self.response_complete and (problem := body.keep()):
            self.refuse(problem)

    def failed_at(self, replica: Replica, reason: str) -> None:
        """Send it to another replica, or end it: this one gives no answer, or no more of it."""
        forwarding, body = self.forwarding, self.body
        assert forwarding is not None
        forwarding.count_failure(replica, "reset")
        bodiless = not body.length and not body.chunked  # what came of a body is gone
        if not forwarding.began and self.target.method == b"GET" and bodiless and not forwarding.tried:
            forwarding.leave_replica(monotonic())
            body.parts.clear()
            self._later(self._connect, forwarding, forwarding.another(replica))
        else:
            self.fail(no_whole_answer(reason))

    def replica_lacks(self) -> None:
        """Send it to another replica, or hand the answer on: this one may have said that it lacks the model."""
        self._later(self._look_elsewhere, self.forwarding)

    async def _look_elsewhere(self, forwarding: HttpForwarding) -> None:
        if (other := await forwarding.look_elsewhere()) is not None:
            await self._connect(forwarding, other)

    # --- to the caller
    def receiving_paused(self, paused: bool) -> None:
        """Learn whether the caller takes the answer slower than it comes."""
        if self.forwarding is not None:
            self.forwarding.receiving_paused(paused)

    def _say(self, status: int, media_type: str, body: bytes) -> None:
        """Answer with what is at hand."""
        if not self.body.complete or self.shared.draining:
            self.keep_alive = False
        self._write(whole_answer(status, media_type, body, self.request_id, keep_alive=self.keep_alive))
        self.finish(status, monotonic())

    def _write(self, answer: tuple[bytes, bytes]) -> None:
        head, body = answer[0], b"" if self.method == b"HEAD" else answer[1]
        self._own_bytes = len(body)
        self.caller.write_out(head + body)

    def fail(self, problem: Problem) -> None:
        """End it with a problem; where an answer has begun, only the end of the connection can tell."""
        if self.response_complete:
            return
        forwarding = self.forwarding
        if forwarding is not None:
            forwarding.drop()
        self._problem = problem.with_traceback(None)  # which knows all that it passed, for as long as it is known
        count_problem(self.shared.meter, problem, forwarding)
        if forwarding is not None and forwarding.began:
            # A body with a length or in chunks is seen to be cut short when the connection just ends; another is not.
            self.keep_alive = False
            if not self.http_11:
                self.caller.transport.abort()
        else:
            body = self.body
            left = (body.length or 0) - body.received
            if not body.complete and (body.chunked or left > MOST_DRAINED or self.expects_continue):
                self.keep_alive = False
            told = KINDS[self.target.kind].tell_problem(problem, self.request_id.decode())
            self._write(problem_answer(problem, self.request_id, keep_alive=self.keep_alive, told=told))
        self.finish(problem.type.status, monotonic())

    def stream_broke(self) -> None:
        """End it as failed, though its answer began with 200: its stream tells an error, or ends before its end."""
        forwarding = self.forwarding
        assert forwarding is not None
        why = forwarding.error or "its stream of events ended before its last event"
        self._problem = problem = no_whole_answer(why)
        count_problem(self.shared.meter, problem, forwarding)
        self.finish(problem.type.status, monotonic())

    def _later(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        """Go on with work that waits for something."""
        self._task = asyncio.get_running_loop().create_task(self._work(work, *given))

    async def _work(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        SENDER.set(self.caller)
        try:
            await work(*given)
        except Exception as error:
            self._end_with(error)

    def _end_with(self, error: Exception) -> None:
        if not isinstance(error, Problem):
            log.error("request %s met a defect", self.request_id.decode(), exc_info=error)
            error = Problem(ProblemType.INTERNAL, "It is in the log, under this request's id.")
        self.fail(error)

    def finish(self, status: int, now: float) -> None:
        """End it: give back and count everything."""
        self.response_complete = True
        shared, body = self.shared, self.body
        shared.open_calls.discard(self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if body.booking is not None:
            body.release()
        seconds = now - self.started
        size, forwarding, called, waited = self._own_bytes, self.forwarding, None, 0.0
        if forwarding is not None:
            size = size or forwarding.size
            forwarding.finish(now)
            if forwarding.usage is not None:
                forwarding.count_usage()
            route = forwarding.grant.route
            if not forwarding.looks:  # readiness and metadata are no work of the model
                if (count := route.http_count) is None:
                    count = route.http_count = shared.meter.of_calls(route.server, route.name, "http")
                count.ended(status, seconds, body.received, size)
                called, waited = route.key, forwarding.waited
            if shared.meter.most_callers:
                principal = forwarding.grant.identity.principal
                shared.meter.called(principal.name, principal.source, "http", status)
        is_logged = shared.call_log.wants(status, now, called, seconds, waited, forwarding is None)
        if is_logged or (self._span is not None and self._span.sampled):
            self._tell(status, seconds, (body.received, size), is_logged)
        self.caller.ended(self)
        self.forwarding = None  # each knows the other: apart, they go without the collector of cycles
        self.passed = b""  # its connection knows it until the next

    def _tell(self, status: int, seconds: float, size: tuple[int, int], is_logged: bool) -> None:
        asked, verb = (self.target.server, self.target.model), self.target.verb
        problem, shared, trace = self._problem, self.shared, http_parent(self.passed)
        said = call_record(self.forwarding, "http", self.request_id, verb, asked, problem, seconds, size, trace)
        if is_logged:
            shared.call_log.say(status, {"status": status, **said})
        if self._span is not None and shared.tracer is not None:
            version = "1.1" if self.http_11 else "1.0"
            shared.tracer.http_ended(self._span, self.target, version, status, said)
