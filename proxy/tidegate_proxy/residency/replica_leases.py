"""The leases at one replica: acquired, renewed and given back at its eviction policy."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from tidegate_contracts import lease as api
from tidegate_contracts.placement import TOGETHER_SECONDS
from tidegate_contracts.triton import model_ready_path

from ..shared_tasks import SharedTasks
from ..upstream.replica import Replica
from ..upstream.request import NoAnswerError, send
from .client import GoneError, LeaseClient, Listing, PolicyError
from .leases import Lease

USABLE = 0.9  # Share of a lease in which requests can begin under it. The rest covers their way to the server.
FIRST_LEASE_SECONDS = 9.0  # Assumed length of a lease until the policy has sent it.
MOST_SILENT = 2  # Unanswered renewals in a row after which callers that wait for a lease here try other replicas.
ANSWER_SECONDS = 2.0  # Timeout of a renewal, a release or a listing.
DOUBT_SECONDS = 1.0  # Seconds between two doubts, so that requests that make servers fail do not load the policy.
READY_AT_ONCE = 8  # Concurrent readiness requests to a server while its policy is gone.
LISTING_SECONDS = 1.0  # Seconds for which a listing is remembered.
IN_FLIGHT_SECONDS = 0.02  # Seconds between two checks for requests in flight, when leaving.
_NOT_USED = "its replica is no longer used"
_Wanted = tuple[str, float | None, bool]  # The model, how long to wait for memory, and whether only spare memory.
log = logging.getLogger(__name__)


@dataclass(eq=False)
class ReplicaLeases:
    """The leases at one replica: acquired, renewed together three times a period, released.

    `holder` is this proxy's name in the lease API, `host` the name in requests to the server. `granted` is called with
    each lease that is held from now on, `dropped` with each that is not, `count` with the outcome of each acquire.
    """

    _holder: str
    replica: Replica
    _client: LeaseClient
    _host: str
    _on_granted: Callable[[Lease], None]
    _on_dropped: Callable[[Lease], None]
    _count: Callable[[str], None]
    incarnation: str = ""
    lease_seconds: float = FIRST_LEASE_SECONDS
    resident: frozenset[str] = frozenset()  # Models with an immediate lease, as of the last renewal.
    accepts: bool = True  # Whether the policy grants new leases.
    silent: int = 0  # Unanswered renewals in a row.
    silent_since: float = 0.0  # Time of the first of them.
    _doubted: float = 0.0
    _hurried: float = 0.0
    _left: bool = False
    _listing: tuple[float, asyncio.Task[Listing]] | None = None

    def __post_init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.came = monotonic()  # When it was first listed.
        self.tried_once = asyncio.Event()  # Set when the first renewal has ended, with a response or without.
        self._acquiring: SharedTasks[tuple[_Wanted, float], api.Answer] = SharedTasks()
        self._began: dict[_Wanted, float] = {}  # When the last request for each began, while it is in progress.
        self._releases: set[asyncio.Task[None]] = set()
        self._hurry = asyncio.Event()
        self._renewing = asyncio.get_running_loop().create_task(self._run())

    # --- acquiring
    async def acquire(self, model: str, room_seconds: float | None = None, *, spare: bool = False) -> api.Answer:
        """Request a lease, together with callers that began to wait for the same within a second. Raises PolicyError.

        Each caller waits for as long as the pool allows, also if it came later. The request is cancelled when its last
        caller leaves. `room_seconds` limits the wait for free memory. None means the pool's own limit. `spare` accepts
        only memory that no other model needs.
        """
        if self._left:
            raise PolicyError(_NOT_USED)
        wanted, now = (model, room_seconds, spare), monotonic()
        began = self._began.get(wanted, now)
        if now - began >= TOGETHER_SECONDS:
            began = now
        self._began[wanted] = began
        return await self._acquiring.join((wanted, began), lambda: self._acquire_once(wanted, began))

    async def _acquire_once(self, wanted: _Wanted, began: float) -> api.Answer:
        model, room_seconds, spare = wanted
        message = api.Acquire(holder=self._holder, model=model, room_seconds=room_seconds, spare=spare or None)
        try:
            answer = await self._acquire(message)
        except PolicyError:
            self._count("unanswered")
            raise
        finally:
            if self._began.get(wanted) == began:
                del self._began[wanted]
        if not (spare and isinstance(answer, api.Busy)):
            self._count(answer.outcome)
        return answer

    async def _acquire(self, message: api.Acquire) -> api.Answer:
        model = message.model
        while True:
            sent = monotonic()
            try:
                answer = await self._client.acquire(message)
            except GoneError:
                # If there was a policy, resident models stay and can be used without it: see `_keep`.
                incarnation, seconds = self.incarnation, self.lease_seconds
                if not incarnation or not await self._is_ready(model):
                    raise
                answer = api.Granted(incarnation=incarnation, lease_seconds=seconds, versions=())
            if not isinstance(answer, api.Granted):
                return answer
            self._granted(model, sent, answer)
            whole = answer.lease_seconds - answer.waited_seconds
            if sent + answer.lease_seconds - monotonic() >= whole / 2:
                return answer
            # The lease counts from when it was requested: after a long load too little of it is left.

    def _granted(self, model: str, sent: float, granted: api.Granted) -> None:
        if self._left:
            raise PolicyError(_NOT_USED)  # it is not renewed any more, and expires
        if granted.incarnation != self.incarnation:
            self._restarted(granted.incarnation)
        lease = self.leases.get(model)
        if lease is None:
            lease = self.leases[model] = Lease(model, self.replica)
        lease.held = True
        lease.since = sent
        margin = (1 - USABLE) * (granted.lease_seconds - granted.waited_seconds)
        lease.until = sent + granted.lease_seconds - max(0.0, margin)
        lease.used = monotonic()
        lease.serial = max(lease.serial, granted.serial)
        lease.versions = granted.versions or lease.versions
        self._on_granted(lease)  # at once, so that no other request acquires it again

    # --- renewing
    async def _run(self) -> None:
        while True:
            sent = monotonic()
            self._hurry.clear()
            await self._renew(sent)
            self.tried_once.set()
            pause = self.lease_seconds / api.RENEWALS_PER_LEASE
            if self.silent:
                pause = min(1.0, pause / 3)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, sent + pause - monotonic())):
                    await self._hurry.wait()

    async def _renew(self, sent: float) -> None:
        named = {model: lease for model, lease in self.leases.items() if lease.held or lease.in_flight}
        uses = {model: lease.use(sent) for model, lease in named.items()}
        before = self.incarnation
        message = api.Renew(holder=self._holder, incarnation=before, models=uses)
        seconds = min(ANSWER_SECONDS, self.lease_seconds / api.RENEWALS_PER_LEASE)
        try:
            renewed = await self._client.renew(message, seconds)
        except GoneError:
            self._unanswered("its process has ended")  # waiting callers get the same error, and may find the model
            await self._keep(sent, [lease for lease in named.values() if lease.held])
        except PolicyError as error:
            self._unanswered(str(error))
            if self.silent >= MOST_SILENT:
                self._acquiring.fail(error)
        except Exception:
            log.exception("the renewal at %s failed unexpectedly", self.replica.name)
            self._unanswered("internal error of the proxy")
        else:
            if self.silent:
                log.info("the eviction policy of %s responds again", self.replica.name)
            self.silent = 0
            for model, lease in named.items():
                lease.reported += uses[model].requests
            if self.incarnation == before:  # otherwise a grant has reported a newer start meanwhile
                self._renewed(sent, named, renewed)

    def _renewed(self, sent: float, named: dict[str, Lease], renewed: api.Renewed) -> None:
        self.lease_seconds = max(0.1, renewed.lease_seconds)
        self.resident = frozenset(renewed.resident)
        self.accepts = renewed.accepts
        if renewed.incarnation != self.incarnation:
            self._restarted(renewed.incarnation)
            return
        lost = set(renewed.lost)
        for model, lease in named.items():
            if not lease.held or lease.since >= sent:
                continue  # given up, or requested again, since
            if model in lost:
                self.drop(lease)
            elif sent >= max(self._doubted, lease.doubted):
                lease.until = max(lease.until, sent + renewed.lease_seconds * USABLE)

    def _restarted(self, incarnation: str) -> None:
        """Drop every lease: the policy or its server has restarted and knows none of them."""
        if self.incarnation:
            log.info("the eviction policy of %s has restarted: its leases are void", self.replica.name)
            for lease in list(self.leases.values()):
                if lease.held:
                    self.drop(lease)
                lease.serial = 0
        self.incarnation = incarnation

    def _unanswered(self, why: str) -> None:
        if not self.silent:
            self.silent_since = monotonic()
        self.silent += 1
        if self.silent == MOST_SILENT:
            log.warning("the eviction policy of %s does not respond: %s", self.replica.name, why)

    async def _keep(self, sent: float, leases: list[Lease]) -> None:
        """Keep leases that cannot be renewed because the policy's process has ended. Its next process grants each for a
        full period from when it listens. Only the server can show that it has not restarted meanwhile."""
        until = sent + self.lease_seconds * USABLE
        due = [lease for lease in leases if lease.until < until - self.lease_seconds / api.RENEWALS_PER_LEASE]
        used = [lease for lease in due if lease.idle_seconds(sent) < self.lease_seconds]
        for begin in range(0, len(used), READY_AT_ONCE):
            some = used[begin : begin + READY_AT_ONCE]
            ready = await asyncio.gather(*(self._is_ready(lease.model) for lease in some))
            for lease, is_ready in zip(some, ready, strict=True):
                if is_ready and lease.held and sent >= max(self._doubted, lease.doubted):
                    lease.until = max(lease.until, until)

    async def _is_ready(self, model: str) -> bool:
        head = f"GET {model_ready_path(model)} HTTP/1.1\r\nhost: {self._host}\r\n\r\n".encode()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = self.replica.take(monotonic()) or await self.replica.connect(ANSWER_SECONDS)
                return (await send(self.replica, connection, head)).status == 200
        except (OSError, NoAnswerError):
            return False

    # --- giving up
    def drop(self, lease: Lease) -> None:
        """Begin no more requests under a lease. It is given back when those in flight have ended."""
        lease.held = False
        lease.until = 0.0
        self._on_dropped(lease)

    def doubt(self) -> None:
        if (now := monotonic()) < self._doubted + DOUBT_SECONDS:
            return
        self._doubted = now
        for lease in self.leases.values():
            lease.until = 0.0
        self._hurry.set()

    def mark_unresponsive(self) -> None:
        self.doubt()
        self._acquiring.fail(PolicyError(_NOT_USED))

    def doubt_one(self, lease: Lease) -> None:
        if (now := monotonic()) < lease.doubted + DOUBT_SECONDS:
            return
        lease.doubted = now
        lease.until = 0.0
        if now >= self._hurried + DOUBT_SECONDS:  # once for all models: a request for one of them acquires again
            self._hurried = now
            self._hurry.set()

    def give_back(self) -> None:
        """Release leases that are neither held nor in use, in one call that names the latest grants, so that it ends no
        later one. Those of an earlier start of the policy, or a silent one, just expire."""
        done = {model: lease for model, lease in self.leases.items() if not lease.held and not lease.in_flight}
        for model in done:
            del self.leases[model]
        serials = {model: lease.serial for model, lease in done.items() if lease.serial}
        if serials and not self.silent:
            message = api.Release(
                holder=self._holder, incarnation=self.incarnation, models=tuple(serials), serials=serials
            )
            task = asyncio.get_running_loop().create_task(self._release(message))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    async def _release(self, message: api.Release) -> None:
        try:
            await self._client.release(message, ANSWER_SECONDS)
        except GoneError:
            pass
        except PolicyError as error:
            log.warning("the eviction policy of %s did not take leases back: %s", self.replica.name, error)

    def leave(self) -> asyncio.Task[None]:
        """Drop every lease at once and take no new one. Return the task that gives them back after use."""
        self._left = True
        self._acquiring.fail(PolicyError(_NOT_USED))
        for lease in self.leases.values():
            if lease.held:
                self.drop(lease)
        return asyncio.get_running_loop().create_task(self._leave())

    async def _leave(self) -> None:
        while any(lease.in_flight for lease in self.leases.values()):
            await asyncio.sleep(IN_FLIGHT_SECONDS)
        self._renewing.cancel()
        self.give_back()
        if self._releases:
            await asyncio.wait(set(self._releases))
        self._client.close()

    # --- what is resident
    def is_warm(self, model: str) -> bool:
        """Return whether a model seems to be resident here."""
        return model in self.resident or ((lease := self.leases.get(model)) is not None and lease.held)

    async def listing(self) -> Listing:
        """Return every model here as the policy saw it at most `LISTING_SECONDS` ago. Raises PolicyError."""
        now = monotonic()
        if self._listing is None or now - self._listing[0] > LISTING_SECONDS:
            self._listing = now, asyncio.get_running_loop().create_task(self._client.listing(ANSWER_SECONDS))
        return await asyncio.shield(self._listing[1])
