"""One request of a caller, and its answer: decided, sent to a replica, and handed back as it comes.

When all is at hand (a known credential, a place, an idle connection) a call runs through without a task of its own:
that is the fast path. Whatever has to be waited for is awaited in one task, and then the same steps go on.
What goes to the replica and comes from it is in `relay.py`; what gRPC does alike is in `forwarding.py`.
"""

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from ..access.identity import Grant
from ..access.limits import too_many
from ..forwarded import no_place
from ..pools import ask
from ..problems import Kind, Problem
from ..residency.manager import LeaseManager
from ..residency.saying import no_answer, still_loading
from ..routes import Route
from ..sequences import learn, sequence_of
from .relay import Relay

if TYPE_CHECKING:
    from ..aliases import Alias

MOST_UNSENT = 256 * 1024
"""Bytes of a body that wait for a connection before its sender is held."""
NO_STATISTICS = b'{"model_stats":[]}'
"""What there is of a model that is loaded nowhere."""
CLIENT_LEFT = 499
"""What is counted for a caller who left; nobody receives it (nginx's number)."""


class _NoEvent:
    def set(self) -> None:
        """Do nothing: no exchange waits for uvicorn's messages."""


class Exchange(Relay):
    """Begins when the request's head is there. The door hands it the body; a connection hands it the answer."""

    message_event: ClassVar[_NoEvent] = _NoEvent()
    # What most exchanges never change costs them nothing here.
    disconnected = False
    _refusal: Problem | None = None
    _gathered = 0
    _whole: asyncio.Future[None] | None = None
    _answer_bytes_before = 0

    # --- from the caller
    def start(self) -> None:
        """Decide and send, as far as that goes without waiting."""
        self.shared.open_calls.add(self)
        try:
            if (refusal := self.head.refusal or self._refusal) is not None:
                self.keep_alive = False
                self.fail(refusal)
            elif self.head.method != self.target.method:
                allow = self.target.method.decode()
                self.fail(Problem(Kind.METHOD, f"This address takes {allow}.", allow=allow))
            elif self.length is not None and self.length > self.shared.settings.body_limit_bytes:
                self.fail(self._too_long())
            else:
                self._decide()
        except Exception:
            self.met_defect()

    def _decide(self) -> None:
        target = self.target
        grant = self.shared.authorizer.known(self.head.credential, target.server, target.model, target.action)
        if grant is None:
            self._later(self._ask())
        else:
            self._granted(grant)

    def refuse(self, problem: Problem) -> None:
        """End it, in its turn, because its body is none."""
        if self.door.active is self:
            self.fail(problem)
        else:
            self._refusal = problem

    def take_body(self, data: bytes) -> None:
        """Take a part of the request's body."""
        if self.response_complete:
            return
        self.body_bytes += len(data)
        if self.chunked:
            if self.body_bytes > self.shared.settings.body_limit_bytes:
                self.refuse(self._too_long())
                return
            self._chunk += data
        else:
            self._out.append(data)
        if self._connection is None and self.body_bytes > MOST_UNSENT and not self.paused:
            if self._whole is None:
                self.sending_paused(True)
            else:
                self._gather()

    def _gather(self) -> None:
        """Have room for a body that must be whole before it is sent on."""
        more = self.body_bytes - MOST_UNSENT - self._gathered
        if self.shared.buffered.take(more):
            self._gathered += more
        else:
            self.refuse(Problem(Kind.BUSY, "Too many large requests are being read already.", 1.0))

    def end_body(self) -> None:
        """Learn that the request is whole."""
        self.body_complete = True
        if self.chunked and not self.response_complete:
            self._end_chunk()
            self._out.append(b"0\r\n\r\n")
        if self._whole is not None and not self._whole.done():
            self._whole.set_result(None)

    def abandon(self) -> None:
        """End it: the caller has left. What a replica does for it is dropped."""
        if not self.response_complete:
            self.disconnected = True
            self._drop_connection()
            self._finish(CLIENT_LEFT)

    def expire(self) -> None:
        """End it: its time is up. A stream that moves goes on, unless the caller said when it is to end."""
        most = self.shared.settings.request_timeout_seconds
        streams = self._began and self.target.verb == "generate_stream" and self.head.seconds >= most
        if streams and self._answer_bytes > self._answer_bytes_before:
            self._answer_bytes_before = self._answer_bytes
            self.deadline = monotonic() + most
            return
        replica, bound_is_own = self._replica, self.head.seconds >= most
        if replica is not None and not self._began and bound_is_own and (self.body_complete or self.paused):
            self._count_failure(replica, "timeout")
        seconds = self.deadline - self.started
        self.fail(still_loading(seconds) if self._loading else Problem(Kind.DEADLINE, no_answer(seconds)))

    # --- towards the replica
    async def _ask(self) -> None:
        target = self.target
        grant = await self.shared.authorizer.ask(self.head.credential, target.server, target.model, target.action)
        self._granted(grant)

    def _granted(self, grant: Grant) -> None:
        self._grant = grant
        if self.expects_continue and not self.body_complete:
            self.door.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False
        if grant.bucket is not None and (wait := grant.bucket.take(self.started)):
            self.fail(too_many(grant.bucket, wait))
            return
        leases = grant.route.pool.leases
        if leases is None:
            self._enter()
        elif self.target.verb in ("ready", "stats"):
            self._later(self._look(leases))
        elif (lease := leases.find(self.target.model, monotonic())) is not None:
            self._lease = lease
            self._enter()
        else:
            self._later(self._get_lease(leases))

    async def _find_version(self, alias: "Alias") -> None:
        self._enter(await alias.find(), read=True)

    def _leased(self) -> None:
        self._enter(read=bool(self._tried))

    async def _look(self, leases: LeaseManager) -> None:
        """Answer what is only looked at: that loads no model, and keeps none."""
        assert self._grant is not None
        model = self.target.model
        if self.target.verb == "ready":
            self._say(200 if await leases.is_ready(model) else 400, "text/plain", b"")
        elif (replica := leases.warm_at(model, monotonic())) is None:
            self._say(200, "application/json", NO_STATISTICS)
        else:
            path = self.target.path(self.target.version)
            own_bound = self.head.seconds >= self.shared.settings.request_timeout_seconds
            left = self.deadline - monotonic()
            answer = await ask(self._grant.route.pool, path, left, replica, own_bound=own_bound)
            self._say(answer.status, answer.media_type, answer.body)

    async def _find_sequence(self, route: Route) -> None:
        """Learn which sequence it is of, unless the model knows none; it may know them where that cannot be learned."""
        if route.sequential is None:
            await learn(route, self.shared.settings.connect_timeout_seconds)
        if route.sequential is not False:
            self._whole = self.door.loop.create_future()
            if self.body_complete:
                self._whole.set_result(None)
            elif self.paused:
                self.sending_paused(False)
            await self._whole
            body = b"".join(self._out[1:2] if self.chunked else self._out)  # the one chunk stands behind its size
            self._sequence = sequence_of(self.head.passed, body, self.shared.settings.body_limit_bytes)
        self._enter(read=True)

    def _enter(self, found: str | None = None, *, read: bool = False) -> None:
        """Find the version, and get a place; `found` by an alias. Of some, it is `read` first which sequence it is."""
        assert self._grant is not None
        route, asked = self._grant.route, self.target.version
        if (
            not read
            and route.sequential is not False
            and self.target.verb == "infer"
            and (len(route.pool.replicas) > 1 or (route.is_split and asked is None))
        ):
            self._later(self._find_sequence(route))
            return
        if route.alias is None or asked is not None:
            # One sequence has one version.
            self._version = route.version(asked, self.head.sticky or self._sequence)
        else:
            self._version = found or route.alias.known(monotonic())
            if self._version is None:
                self._later(self._find_version(route.alias))
                return
        places = self.shared.limiter
        model, caller = route.in_flight, self._grant.identity.in_flight
        if places.try_acquire(model, caller):
            self.admitted()
        elif places.enqueue(self, model, caller, self._waited):
            self._in_line = True
        else:
            self.fail(no_place())

    def admitted(self) -> None:
        """Go on: there is a place."""
        waited, self._in_line = self._in_line, False
        self._placed = True
        try:
            now = monotonic()
            replica = self._pick(now, waited)
            if replica is not None:
                self._trial = replica.breaker.claim(now)
            if replica is not None and (connection := replica.take(now)) is not None:
                self._send_head(replica, connection)
                if waited:
                    self.flush_request()
            else:
                self._later(self._connect(replica))
        except Exception:
            self.met_defect()

    def sending_paused(self, paused: bool) -> None:
        """Hold the caller's body back, or let it come."""
        self.paused = paused
        self.door.listen()

    # --- the end
    def _too_long(self) -> Problem:
        limit = self.shared.settings.body_limit_bytes
        return Problem(Kind.TOO_LONG, f"A request's body may have {limit} bytes here.")

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self.door.loop.create_task(self._work(work))
        self._task.add_done_callback(lambda _: work.close())  # one that is cancelled before it begins is never awaited

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Problem as problem:
            self.fail(problem)
        except Exception:
            self.met_defect()

    def met_defect(self) -> None:
        """End it, for what was just raised should never have been."""
        self.door.logger.exception("request %s met a defect", self.request_id.decode())
        self.fail(Problem(Kind.INTERNAL, "It is in the log, under this request's id."))

    def _leave_place(self) -> None:
        assert self._grant is not None
        self._placed = False
        self.shared.limiter.release(self._grant.route.in_flight, self._grant.identity.in_flight)

    def _finish(self, status: int) -> None:
        self.response_complete = True
        shared = self.shared
        shared.open_calls.discard(self)
        now = monotonic()
        replica = self._replica
        if replica is not None:
            replica.in_flight -= 1
            if self._lease is not None:
                self._lease.leave(now)
        task = self._task
        if task is not None and task is not asyncio.current_task(self.door.loop):
            task.cancel()
        if self._trial is not None:
            self._give_up_trial()
        if self._gathered:
            shared.buffered.give(self._gathered)
        seconds = now - self.started
        grant = self._grant
        if grant is not None:
            route = grant.route
            if self._placed:
                shared.limiter.release(route.in_flight, grant.identity.in_flight)
            elif self._in_line:
                shared.limiter.cancel(self, route.in_flight, grant.identity.in_flight)
            count = route.http_count
            if count is None:
                count = route.http_count = shared.meter.count(route.server, route.name, "http")
            count.ended(status, seconds, self.body_bytes, self._answer_bytes)
        if shared.tracer is not None:
            self._trace(shared.tracer, status, seconds)
        if shared.call_log.wants(status, now):
            shared.call_log.say(status, self._told(seconds).log_fields(status))
        self.door.exchange_ended(self)
