"""One call over HTTP: decided, sent to a replica, and its answer handed back as it comes.

`start` → `_decide` → `_granted` → `_go_to_replica` → `_send`; then, as an `Exchange`, it hands the answer back.
When all is at hand (a known credential, a slot, an idle connection) a call runs through without a task of its own.
Whatever has to be waited for is awaited in one task, and then the same steps go on.
"""

import asyncio
import re
from dataclasses import replace
from functools import partial
from time import monotonic

from ..access.identity import Grant, Identity
from ..kinds import KINDS
from ..mirror import over_http
from ..problems import Problem, ProblemType, no_answer, still_loading
from ..telemetry.records import CLIENT_LEFT
from ..telemetry.traces import http_parent
from ..upstream.connection import Connection
from ..upstream.replica import Replica
from .body import MOST_UNSENT, PASSING_BYTES
from .exchange import Exchange

_ACCEPTS_ENCODING = re.compile(rb"^accept-encoding:[^\n]*\n", re.IGNORECASE | re.MULTILINE)
LONG_HEAD = 4096  # Bytes of headers that go on; more are counted as held.


class HttpRequest(Exchange):
    """Begins when the request's head is there. Its caller hands it the body; a connection hands it the answer."""

    __slots__ = ("_size_before", "_whole")

    # --- from the caller
    def start(self) -> None:
        """Decide and send, as far as that goes without waiting."""
        self._size_before = 0  # Bytes of the answer when its time was last prolonged.
        self._whole: asyncio.Future[None] | None = None  # Done when the body is whole, if that is waited for.
        shared, target, length = self.shared, self.target, self.body.length
        shared.open_calls.add(self)
        if shared.tracer is not None:
            self._span, self.passed = shared.tracer.over_http(self.passed)
        try:
            if self.refusal is not None:
                self.keep_alive = False
                raise self.refusal
            if self.method != target.method:
                allow = target.method.decode()
                raise Problem(ProblemType.METHOD, f"This address takes {allow}.", allow=allow)
            if length is not None and length > shared.body_limit_bytes:
                raise self.body.too_long()
            if len(self.passed) > LONG_HEAD:
                self.body.book_head(len(self.passed))
            if not target.in_body:
                self._decide(shared.authorizer.known(self.credential, target.asked))
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
        body = self.body
        size = body.received + len(data)
        if size <= PASSING_BYTES and not body.chunked:
            body.received = size
            body.parts.append(data)
        elif (problem := body.take(data, self.connection is not None)) is not None:
            self.refuse(problem)

    def end_body(self) -> None:
        """Learn that the request is whole."""
        body = self.body
        body.complete = True
        if self.response_complete:
            return
        if body.chunked:
            body.end_chunks()
        if body.gathers:
            if self._whole is not None and not self._whole.done():
                self._whole.set_result(None)
            elif self.target.in_body:
                self._find_sender()

    def _ask_for_body(self) -> None:
        if self.expects_continue and not self.body.complete:
            self.caller.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False

    def abandon(self) -> None:
        """End it: the caller has left. What a replica does for it is dropped."""
        if not self.response_complete:
            self.drop()
            self.finish(CLIENT_LEFT, monotonic())

    def expire(self) -> None:
        """End it: its time is up. A stream that moves goes on, unless the caller said when it is to end."""
        most, bound_is_own = self.shared.call_seconds, self.bound_is_own
        size = self.size if self.began else 0
        if self.target.streams and bound_is_own and size > self._size_before:
            self._size_before = size
            self.deadline = monotonic() + most
            return
        may_blame = bound_is_own and (self.body.complete or self.body.is_held)
        if may_blame and self.replica is not None and not self.began:
            self.count_failure(self.replica, "timeout")
        seconds = self.deadline - self.started
        self.fail(still_loading(seconds) if self.loading else Problem(ProblemType.DEADLINE, no_answer(seconds)))

    def replica_silent(self) -> None:
        """Go elsewhere, if it only looks; else keep no other from its place: it may still be answered."""
        if self.looks:
            self.drop()
            self.answer_failed("there is no answer")
        else:
            self.release_slot()

    # --- deciding
    def _find_sender(self) -> None:
        """Read a body that says what is asked, once it is known who sends it."""
        identity = self.shared.authorizer.remembered(self.credential)
        try:
            if identity is None:
                self._later(self._identify)
            else:
                self._let_body_come(identity)
        except Exception as error:
            self._end_with(error)

    async def _identify(self) -> None:
        self._let_body_come(await self.shared.authorizer.identify(self.credential))

    def _let_body_come(self, identity: Identity) -> None:
        target, body = self.target, self.body
        if body.complete and body.received <= MOST_UNSENT:
            self.target, found = KINDS[target.kind].open_body(target, body.whole())
            body.opened(found)
            self._decide(self.shared.authorizer.granted(identity, self.target.asked))
            return
        body.known_as(identity.in_flight)
        body.gathers = True
        if body.is_held:
            body.hold(False)
        if body.complete:
            self._later(self._open_long_body)
        elif self.expects_continue:
            self._ask_for_body()

    def _decide(self, grant: Grant | None) -> None:
        """Go on with what is granted, or ask for it."""
        if grant is None:
            self._later(self._ask)
        else:
            self._granted(grant)

    async def _ask(self) -> None:
        self._granted(await self.shared.authorizer.ask(self.credential, *self.target.asked))

    async def _open_long_body(self) -> None:
        """Read what is asked in a long body: in a thread, one after the other, while other calls go on."""
        kind, target, body = KINDS[self.target.kind], self.target, self.body
        loop = asyncio.get_running_loop()
        opened = loop.run_in_executor(self.shared.reader, lambda: kind.open_body(target, body.whole()))
        self.target, found = await opened
        body.opened(found)
        self._decide(self.shared.authorizer.known(self.credential, self.target.asked))

    def _granted(self, grant: Grant) -> None:
        route, target, body = grant.route, self.target, self.body
        if route.names and (version := route.names.get(target.model)) is not None:
            self.target = target = replace(target, version=version)
        if self.expects_continue:
            self._ask_for_body()
        caller = grant.identity.in_flight
        if body.booking is None:
            body.holder = caller
        else:
            body.known_as(caller)
        if self.caller.is_unknown:
            self.caller.known_as(caller)
        if grant.tokens is not None and target.asks_for_usage is None:
            why = "Where tokens are limited, `stream` is true or false, and `stream_options` one short object."
            raise Problem(ProblemType.MALFORMED, why)
        self.granted(grant, target.action == "inspect")
        grant.count(self.started)
        is_leased = route.pool.leases is not None
        if is_leased and target.looks_only:
            self._later(self._look)
        elif not (
            (not is_leased or self.find_lease())
            and not (target.may_be_of_sequence and route.must_know_sequence(target.version))
            and self.find_version(target.version, self.sticky)
        ):
            self._later(self._prepare)
        elif self.acquire_slot():
            self._go_to_replica(False)

    async def _prepare(self) -> None:
        """Wait for what is not at hand: the model's lease, the request's sequence, the version; then take a slot."""
        route, target = self.route, self.target
        if not self.find_lease():
            await self.acquire_lease(self.request_id, http_parent(self.passed))
        if target.may_be_of_sequence and self._whole is None and route.must_know_sequence(target.version):
            await self._find_sequence()
        if not self.find_version(target.version, self.sticky):
            await self.await_version()
        if self.acquire_slot():
            self._go_to_replica(False)

    async def _find_sequence(self) -> None:
        """Learn which sequence it is of, unless the model knows none; it may know them where that cannot be learned."""
        route = self.route
        if await route.sequences.find(self.shared.settings.connect_timeout_seconds) is False:
            return
        self._whole = asyncio.get_running_loop().create_future()
        if self.body.complete:
            self._whole.set_result(None)
        self.body.let_come()
        await self._whole
        self.body.choose(self.target.model, None)
        self.sequence = await route.kind.sequence_of(self.passed, self.body.unpacked)
        self.body.drop_unpacked()

    async def _look(self) -> None:
        """Answer what is only looked at: that loads no model, and keeps none."""
        route = self.route
        answer = await route.kind.look(self.target, route.pool, self.deadline - monotonic(), self.bound_is_own)
        self.say(answer.status, answer.media_type, answer.body)

    # --- to the replica
    def admitted(self) -> None:
        """Go on: there is a slot."""
        super().admitted()
        try:
            self._go_to_replica(True)
            self.flush_request()
        except Exception as error:
            self._end_with(error)

    def _go_to_replica(self, waited: bool) -> None:
        now = monotonic()
        replica = self.pick(now, waited)
        if replica is not None and (connection := replica.take(now)) is not None:
            self._send(replica, connection)
        else:
            self._later(self._connect, replica)

    async def _connect(self, replica: Replica | None) -> None:
        found = await self.connect(
            replica, self._connection_to, lambda unused: unused.replica.give(unused, monotonic())
        )
        if found is None:
            await self._prepare()
        else:
            self._send(*found)

    async def _connection_to(self, replica: Replica) -> Connection:
        """Return a new connection; raises OSError. The replica has that, too, of a call that ends meanwhile."""
        self.is_cut = True
        try:
            return await replica.connect(self.shared.settings.connect_timeout_seconds)
        finally:
            self.is_cut = False

    def _send(self, replica: Replica, connection: Connection) -> None:
        """Put the head before what there is of the body, and send it on later, over a connection to a replica."""
        self.sent_to(replica)
        self.connection = connection
        connection.receiver = self
        route, target, body, passed = self.route, self.target, self.body, self.passed
        first = route.first_lines(target, self.version)
        asks_for_usage = False
        if route.tells_usage:
            asks_for_usage = bool(target.asks_for_usage)
            if asks_for_usage or (self.grant and self.grant.tokens):  # the usage must be readable: nothing unpacks it
                passed = _ACCEPTS_ENCODING.sub(b"", passed)
            assert route.kind.usage_of is not None
            self._status = 0
            self.usage = route.kind.usage_of(target.streams, asks_for_usage)
        if route.mirror is not None and target.mirrored and not self.tried:
            instead = route.first_lines(target, route.candidate)
            mirror = self.shared.mirror
            send = partial(over_http, mirror.connect_seconds, instead, len(first))
            is_of_sequence = target.may_be_of_sequence and (self.sequence is not None or None)
            self._copy = mirror.begin(route, self.version, is_of_sequence, send)
            if self._copy is not None and body.of_version is not None:  # what goes by has the version's name in it
                body.choose(route.name, route.candidate)
                for part in (first, passed, b"x-request-id: ", self.request_id, body.framing(), *body.parts):
                    self._copy.add(part, False)
                self._copy.add(b"", True)
                self._copy = None
        if body.of_version is not None:
            body.choose(route.name, self.version, asks_for_usage)
            if body.received > MOST_UNSENT:
                body.of_version = None  # which holds all of it
        body.parts[:0] = first, passed, b"x-request-id: ", self.request_id, body.framing()
        if body.is_held:
            body.hold(False)
        if self._task is not None:  # otherwise the caller's connection flushes when it has read all that is at hand
            self.flush_request()

    def flush_request(self) -> None:
        """Go on with what has come so far, or book it: no more is at hand."""
        body, connection = self.body, self.connection
        if connection is None:
            if self.target.in_body and not (self._task or body.gathers or self.response_complete):
                self._find_sender()
            elif body.received and body.booking is None and not self.response_complete and (problem := body.keep()):
                self.refuse(problem)
            connection = self.connection
            if connection is None:
                return
        if body.chunked:
            body.end_chunk()
        if body.parts:
            if body.received > MOST_UNSENT and body.gathers:  # joined, it would be there twice
                connection.transport.writelines(body.parts)
                if self._copy is not None:
                    for part in body.parts:
                        self._copy.add(part, body.complete and part is body.parts[-1])
                body.parts.clear()
            else:
                data = b"".join(body.parts)
                body.parts.clear()
                connection.transport.write(data)
                if self._copy is not None:
                    self._copy.add(data, body.complete)
            if body.booking is not None and body.of_version is None:
                body.ease(connection.transport.get_write_buffer_size())
