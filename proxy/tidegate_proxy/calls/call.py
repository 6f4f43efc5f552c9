"""One call of a caller, and its answer: decided, sent to a replica, and handed back as it comes.

The steps are those of `door/exchange.py`; what goes to the replica and comes from it is in `relay.py`. A stream stays
at one replica; each of its messages is decided anew.
"""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..access.identity import Grant
from ..access.limits import too_many
from ..forwarded import no_place
from ..pools import Pool
from ..problems import TWO_CREDENTIALS, Kind, Problem
from ..residency.leases import Lease
from ..residency.manager import LeaseManager
from ..residency.saying import no_answer, still_loading
from ..servers import UNAVAILABLE_HEADER
from .frames import CANCEL
from .heads import RequestHead, literal
from .intake import Asked
from .problems import OK_HEAD, plain_trailers
from .protobuf import framed, integer
from .relay import DEADLINE_EXCEEDED, UNKNOWN, Relay
from .unary import UpstreamStatusError

if TYPE_CHECKING:
    from ..aliases import Alias

CLIENT_LEFT = 1
"""CANCELLED: what is counted for a caller who left; nobody receives it."""
_GRAVE = frozenset({UNKNOWN, DEADLINE_EXCEEDED, 13, 14, 15})
"""And INTERNAL, UNAVAILABLE, DATA_LOSS: what somebody should look at."""


class Call(Relay):
    """Begins with the headers of a request; it is the caller's side of the call."""

    _alias: "Alias | None" = None
    """Decides on the version of the message under way."""
    _unpacking = False

    # --- from the caller
    def begin(self, end: bool) -> None:
        """Wait for the first message."""
        self.shared.open_calls.add(self)
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
        except Exception:
            self.defect()

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
            self.shared.open_calls.discard(self)
        if self._far is not None and self._unpassed:
            self._far.link.credit(self._far, self._unpassed)
            self._unpassed = 0

    def expire(self) -> None:
        """End it: its time is up."""
        if self.done:  # the caller does not take the rest of its answer
            self.shared.open_calls.discard(self)
            self.link.reset(self.number, CANCEL)
            return
        if self._far is not None and not self._began and self._request_ended:
            assert self._replica is not None
            self._count_late(self._replica)
        if self._loading:
            self.fail(still_loading(self.deadline - self.started))
        elif self.method.streams and self.deadline < self._last_deadline:
            self.fail(Problem(Kind.DEADLINE, "Nothing has moved on this stream for too long."))
        else:
            self.fail(Problem(Kind.DEADLINE, no_answer(self.deadline - self.started)))

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
        if self._unpacking:
            return
        while not self._waiting and not self.done:
            if self._asked is None:
                asked = self._intake.asked()
                if asked is None:
                    break
                self._asked = asked
                self._decide(asked)
            elif not self._pass_on():
                break
        if self._waiting or self.done:
            return
        if self._intake.behind:
            self._unpacking = True
            self.board.unpack_later(self)
        else:
            self._end_request()

    def unpack(self) -> None:
        """Unpack some more of a compressed message: it is this call's turn."""
        self._unpacking = False
        if not self.done:
            self._go_on()

    def _decide(self, asked: Asked) -> None:
        if self._first is None:
            self._first = asked
            self._sequence = asked.sequence or None
        self._waiting = True  # until it is known, and there is a replica
        if self.method.streams:
            self.deadline = min(monotonic() + self._most_seconds, self._last_deadline)
        server = self.board.server_of(self.head)
        if not asked.model:
            if self.method.name != "ModelStatistics":
                raise Problem(Kind.MALFORMED, "The message names no model.")
            self._later(self._all_statistics(server))
            return
        grant = self.shared.authorizer.known(self.head.credential, server, asked.model, self.method.action)
        if grant is None:
            self._later(self._ask(asked, server))
        else:
            self._granted(grant, asked)

    async def _ask(self, asked: Asked, server: str | None) -> None:
        grant = await self.shared.authorizer.ask(self.head.credential, server, asked.model, self.method.action)
        self._granted(grant, asked)

    async def _all_statistics(self, server: str | None) -> None:
        answer, missing = await self.board.questions.statistics(self.head.credential, server, self._limit)
        said = literal(UNAVAILABLE_HEADER.encode(), missing) if missing else b""
        self.link.send_head(self, OK_HEAD + self._said() + said)
        self.link.send_data(self, answer)
        self._end(plain_trailers(0), 0)

    def _granted(self, grant: Grant, asked: Asked) -> None:
        before, self._grant = self._grant, grant
        bucket = grant.bucket
        if bucket is not None and (wait := bucket.take(monotonic())):
            raise too_many(bucket, wait)
        # One sequence has one version, and so has one stream.
        sticky = self.head.sticky or asked.sequence or (self.request_id if self.method.streams else None)
        self._alias = grant.route.alias if asked.version is None else None
        self._version = grant.route.version(asked.version, sticky)
        leases = grant.route.pool.leases
        if before is not None:
            if _place(before.route.pool) != _place(grant.route.pool):
                raise Problem(Kind.MALFORMED, "A stream's models are all of one server and pool: open another stream.")
            if leases is None:
                self._with_version(self._wait_no_more)
            else:
                self._use_more(leases, asked.model)
        elif leases is None:
            self._enter()
        elif self.method.name in ("ModelReady", "ModelStatistics"):
            self._later(self._look(leases, asked))
        elif (lease := leases.find(asked.model, monotonic(), (), bool(asked.sequence))) is not None:
            self._lease = lease
            self._enter()
        else:
            self._later(self._get_lease(leases))

    def _with_version(self, then: Callable[[], None]) -> None:
        """Go on once it is known which version serves the message."""
        if self._alias is not None:
            self._version = self._alias.known(monotonic())
            if self._version is None:
                self._later(self._find_version(self._alias, then))
                return
        then()

    async def _find_version(self, alias: "Alias", then: Callable[[], None]) -> None:
        self._version = await alias.find()
        then()

    def _wait_no_more(self) -> None:
        self._waiting = False

    def _enter(self) -> None:
        self._with_version(self._take_place)

    def _leased(self) -> None:
        self._enter()

    def _take_place(self) -> None:
        assert self._grant is not None
        model, caller = self._grant.route.in_flight, self._grant.identity.in_flight
        self._counts = (model.streams, caller.streams) if self.method.streams else (model, caller)
        if self._limiter.try_acquire(*self._counts):
            self.admitted()
        elif self._limiter.enqueue(self, *self._counts, self._waited):
            self._in_line = True
        else:
            raise no_place()

    # --- where models are loaded on demand
    def _use_more(self, leases: LeaseManager, model: str) -> None:
        """Go on with a stream's next message once its model is leased where the stream is."""
        assert self._replica is not None
        lease = leases.at(model, self._replica, monotonic())
        if lease is None:
            self._later(self._get_more(leases, model))
        else:
            self._count_use(lease)

    async def _get_more(self, leases: LeaseManager, model: str) -> None:
        assert self._replica is not None
        self._loading = True
        lease = await leases.acquire_at(model, self._replica)
        self._loading = False
        self._count_use(lease)

    def _count_use(self, lease: Lease) -> None:
        if lease is self._lease or lease in self._more_leases:
            lease.requests += 1
        else:
            lease.enter()
            self._more_leases += (lease,)
        self._with_version(self._wait_no_more)

    async def _look(self, leases: LeaseManager, asked: Asked) -> None:
        """Answer what is only looked at: that loads no model, and keeps none."""
        if self.method.name == "ModelReady":
            answer = framed(integer(1, 1) if await leases.is_ready(asked.model) else b"")
        elif (replica := leases.warm_at(asked.model, monotonic())) is None:
            answer = framed(b"")
        else:
            assert self._grant is not None
            pool = self._grant.route.pool
            answer = await self.board.questions.statistics_at(pool, replica, asked, self._limit)
        self.link.send_head(self, OK_HEAD + self._said())
        self.link.send_data(self, answer)
        self._end(plain_trailers(0), 0)

    # --- places
    def admitted(self) -> None:
        """Go on: there is a place."""
        try:
            self._go_on_placed()
        except Problem as problem:
            self.fail(problem)
        except Exception:  # whoever has left the place is not to suffer from it
            self.defect()

    def _go_on_placed(self) -> None:
        in_line, self._in_line = self._in_line, False
        self._placed = True
        assert self._grant is not None
        pool, now = self._grant.route.pool, monotonic()
        replica = self._pick(now, in_line)
        if replica is not None:
            self._trial = replica.breaker.claim(now)
        if replica is not None and (line := self.board.upstreams.connections(pool, replica).take()) is not None:
            self._send_head(replica, line)
            if in_line:
                self._go_on()
        else:
            self._later(self._connect(replica))

    def _leave_place(self) -> None:
        self._placed = False
        self._limiter.release(*self._counts)

    # --- the end
    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self.link.loop.create_task(self._go(work))

    async def _go(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            if not self._waiting:
                self._work()
        except Problem as problem:
            self.fail(problem)
        except UpstreamStatusError as told:
            self._end(OK_HEAD + told.block + self._said(), told.code)
        except Exception:
            self.defect()

    def _go_on(self) -> None:
        try:
            self._work()
        except Problem as problem:
            self.fail(problem)
        except Exception:
            self.defect()

    def _finish(self, code: int) -> None:
        self.done = True
        self._kept = None
        if not self.unsent_bytes:
            self.shared.open_calls.discard(self)
        task = self._task
        if task is not None and task is not asyncio.current_task(self.link.loop):
            task.cancel()
        self._give_up_trial()
        if self._in_line:
            self._limiter.cancel(self, *self._counts)
        if self._placed:
            self._limiter.release(*self._counts)
        now = monotonic()
        seconds = now - self.started
        if self._grant is not None:
            route = self._grant.route
            count = route.grpc_count
            if count is None:
                count = route.grpc_count = self.shared.meter.count(route.server, route.name, "grpc")
            count.ended(code, seconds, self.bytes_in, self.bytes_out)
        if self.shared.tracer is not None:
            self._trace(self.shared.tracer, code, seconds)
        weight = 500 if code in _GRAVE else 400 if code else 200  # as HTTP would have it, for the log's sampling
        if self.shared.call_log.wants(weight, now):
            self.shared.call_log.say(weight, self._told(seconds).log_fields(code))
        self._release_replica()


def _place(pool: Pool) -> tuple[str, str]:
    return pool.server, pool.name
