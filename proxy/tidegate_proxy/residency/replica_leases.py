"""The leases at one replica: acquired, renewed and given back at its eviction policy, and what that says of itself."""

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

USABLE = 0.9  # Share of a lease in which requests begin under it: the rest is for their way to the server.
FIRST_LEASE_SECONDS = 9.0  # How long a lease is taken to last until the policy has said it.
MOST_SILENT = 2  # Renewals in a row without an answer after which callers that wait for a lease here look elsewhere.
ANSWER_SECONDS = 2.0  # Seconds that a renewal, a release or a listing may take at most.
DOUBT_SECONDS = 1.0  # Seconds between two doubts: requests that make servers fail must not load the policy.
READY_AT_ONCE = 8  # Models that a server is asked about at once, while its policy is gone.
LISTING_SECONDS = 1.0  # Seconds for which a listing is remembered.
IN_FLIGHT_SECONDS = 0.02  # Seconds between two looks at whether requests are still in flight, when leaving.
_NOT_USED = "its replica is not used any more"
_Wanted = tuple[str, float | None, bool]  # Which model, how long to wait for room, and whether only spare room.
log = logging.getLogger(__name__)


@dataclass(eq=False)
class ReplicaLeases:
    """The leases at one replica: acquired, renewed together three times a period, released.

    `holder` is this proxy's name in the lease API, `host` the name that the server is asked by. `granted` and `dropped`
    are called with each lease that is held from now on, or no more; `count` with the outcome of each request for one.
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
    resident: frozenset[str] = frozenset()  # Models that a lease is granted on at once, as of the last renewal.
    accepts: bool = True  # Whether the policy grants new leases.
    silent: int = 0  # Renewals in a row that had no answer.
    silent_since: float = 0.0  # When the first of them was.
    _doubted: float = 0.0
    _hurried: float = 0.0
    _left: bool = False
    _listing: tuple[float, asyncio.Task[Listing]] | None = None

    def __post_init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.came = monotonic()  # When it was first listed.
        self.asked_once = asyncio.Event()  # Set when the first renewal has ended, with an answer or without.
        self._acquiring: SharedTasks[tuple[_Wanted, float], api.Answer] = SharedTasks()
        self._began: dict[_Wanted, float] = {}  # When the last request for each began, if it is under way.
        self._releases: set[asyncio.Task[None]] = set()
        self._hurry = asyncio.Event()
        self._renewing = asyncio.get_running_loop().create_task(self._run())

    # --- acquiring
    async def acquire(self, model: str, room_seconds: float | None = None, *, spare: bool = False) -> api.Answer:
        """Ask for a lease, together with the callers that began to wait for the same within a second: each waits for as
        long as the pool lets it, also if it came later; raises PolicyError.

        The request is cancelled when its last caller leaves. `room_seconds` is how long to wait for room: the pool's
        own bound where it is None. `spare`: only if that takes nothing from others.
        """
        if self._left:
            raise PolicyError(_NOT_USED)
        wanted, now = (model, room_seconds, spare), monotonic()
        began = self._began.get(wanted, now)
        if now - began >= TOGETHER_SECONDS:
            began = now
        self._began[wanted] = began
        return await self._acquiring.join((wanted, began), lambda: self._ask_once(wanted, began))

    async def _ask_once(self, wanted: _Wanted, began: float) -> api.Answer:
        model, room_seconds, spare = wanted
        message = api.Acquire(holder=self._holder, model=model, room_seconds=room_seconds, spare=spare or None)
        try:
            answer = await self._ask(message)
        except PolicyError:
            self._count("unanswered")
            raise
        finally:
            if self._began.get(wanted) == began:
                del self._began[wanted]
        if not (spare and isinstance(answer, api.Busy)):
            self._count(answer.outcome)
        return answer

    async def _ask(self, message: api.Acquire) -> api.Answer:
        model = message.model
        while True:
            asked = monotonic()
            try:
                answer = await self._client.acquire(message)
            except GoneError:
                # Where there was a policy, what is resident stays and can be used without it: see `_keep`.
                incarnation, seconds = self.incarnation, self.lease_seconds
                if not incarnation or not await self._is_ready(model):
                    raise
                answer = api.Granted(incarnation=incarnation, lease_seconds=seconds, versions=())
            if not isinstance(answer, api.Granted):
                return answer
            self._granted(model, asked, answer)
            whole = answer.lease_seconds - answer.waited_seconds
            if asked + answer.lease_seconds - monotonic() >= whole / 2:
                return answer
            # The lease counts from when it was asked for: after a long load too little of it is left.

    def _granted(self, model: str, asked: float, granted: api.Granted) -> None:
        if self._left:
            raise PolicyError(_NOT_USED)  # it is not renewed any more, and runs out
        if granted.incarnation != self.incarnation:
            self._restarted(granted.incarnation)
        lease = self.leases.get(model)
        if lease is None:
            lease = self.leases[model] = Lease(model, self.replica)
        lease.held = True
        lease.since = asked
        margin = (1 - USABLE) * (granted.lease_seconds - granted.waited_seconds)
        lease.until = asked + granted.lease_seconds - max(0.0, margin)
        lease.used = monotonic()
        lease.serial = max(lease.serial, granted.serial)
        lease.versions = granted.versions or lease.versions
        self._on_granted(lease)  # at once, so that no other request asks once more

    # --- renewing
    async def _run(self) -> None:
        while True:
            asked = monotonic()
            self._hurry.clear()
            await self._renew(asked)
            self.asked_once.set()
            pause = self.lease_seconds / api.RENEWALS_PER_LEASE
            if self.silent:
                pause = min(1.0, pause / 3)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, asked + pause - monotonic())):
                    await self._hurry.wait()

    async def _renew(self, asked: float) -> None:
        named = {model: lease for model, lease in self.leases.items() if lease.held or lease.in_flight}
        uses = {model: lease.use(asked) for model, lease in named.items()}
        before = self.incarnation
        message = api.Renew(holder=self._holder, incarnation=before, models=uses)
        seconds = min(ANSWER_SECONDS, self.lease_seconds / api.RENEWALS_PER_LEASE)
        try:
            renewed = await self._client.renew(message, seconds)
        except GoneError:
            self._unanswered("its process has ended")  # who asks for a lease learns so, too, and may find its model
            await self._keep(asked, [lease for lease in named.values() if lease.held])
        except PolicyError as error:
            self._unanswered(str(error))
            if self.silent >= MOST_SILENT:
                self._acquiring.fail(error)
        except Exception:
            log.exception("the renewal at %s met a defect", self.replica.name)
            self._unanswered("the proxy has a defect")
        else:
            if self.silent:
                log.info("the eviction policy of %s answers again", self.replica.name)
            self.silent = 0
            for model, lease in named.items():
                lease.reported += uses[model].requests
            if self.incarnation == before:  # else a grant has told meanwhile of a newer start
                self._renewed(asked, named, renewed)

    def _renewed(self, asked: float, named: dict[str, Lease], renewed: api.Renewed) -> None:
        self.lease_seconds = max(0.1, renewed.lease_seconds)
        self.resident = frozenset(renewed.resident)
        self.accepts = renewed.accepts
        if renewed.incarnation != self.incarnation:
            self._restarted(renewed.incarnation)
            return
        lost = set(renewed.lost)
        for model, lease in named.items():
            if not lease.held or lease.since >= asked:
                continue  # given up, or asked for anew, since
            if model in lost:
                self.drop(lease)
            elif asked >= max(self._doubted, lease.doubted):
                lease.until = max(lease.until, asked + renewed.lease_seconds * USABLE)

    def _restarted(self, incarnation: str) -> None:
        """Drop every lease: the policy or its server was started anew, and knows of none of them."""
        if self.incarnation:
            log.info("the eviction policy of %s has started anew: its leases are void", self.replica.name)
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
            log.warning("the eviction policy of %s gives no answer: %s", self.replica.name, why)

    async def _keep(self, asked: float, leases: list[Lease]) -> None:
        """Keep leases that cannot be renewed because the policy's process has ended.

        Nothing else unloads models, and the policy's next process counts each as leased for one full period from when
        it listens. Only the server can tell that it was not started anew meanwhile, without its models.
        """
        until = asked + self.lease_seconds * USABLE
        due = [lease for lease in leases if lease.until < until - self.lease_seconds / api.RENEWALS_PER_LEASE]
        used = [lease for lease in due if lease.idle_seconds(asked) < self.lease_seconds]
        for begin in range(0, len(used), READY_AT_ONCE):
            some = used[begin : begin + READY_AT_ONCE]
            ready = await asyncio.gather(*(self._is_ready(lease.model) for lease in some))
            for lease, is_ready in zip(some, ready, strict=True):
                if is_ready and lease.held and asked >= max(self._doubted, lease.doubted):
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
        """Begin no more requests under a lease; it is given back when those in flight have ended."""
        lease.held = False
        lease.until = 0.0
        self._on_dropped(lease)

    def doubt(self) -> None:
        """Use no lease here until the policy has confirmed it: the server has just failed a request."""
        if (now := monotonic()) < self._doubted + DOUBT_SECONDS:
            return
        self._doubted = now
        for lease in self.leases.values():
            lease.until = 0.0
        self._hurry.set()

    def mark_unresponsive(self) -> None:
        """Have those who wait for a lease here look elsewhere, and use no lease: the server answers no more."""
        self.doubt()
        self._acquiring.fail(PolicyError(_NOT_USED))

    def doubt_one(self, lease: Lease) -> None:
        """Use this lease no more until the policy has confirmed it: the server said that it does not know the model."""
        if (now := monotonic()) < lease.doubted + DOUBT_SECONDS:
            return
        lease.doubted = now
        lease.until = 0.0
        if now >= self._hurried + DOUBT_SECONDS:  # once for all models: a request for one of them asks anew
            self._hurried = now
            self._hurry.set()

    def give_back(self) -> None:
        """Release what is not held and not in use any more, in one call; a silent policy's leases just run out.

        It names the latest grants, so that it ends none that is made before it arrives. What the policy's present start
        has not granted is not given back: of that it knows nothing.
        """
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
            log.warning("the eviction policy of %s took no leases back: %s", self.replica.name, error)

    def leave(self) -> asyncio.Task[None]:
        """Drop every lease at once, and take none that is granted; return the work of giving them back after use."""
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
        """Tell whether a model is resident here, as far as is known."""
        return model in self.resident or ((lease := self.leases.get(model)) is not None and lease.held)

    async def listing(self) -> Listing:
        """Return every model here as the policy sees it, at most `LISTING_SECONDS` ago; raises PolicyError."""
        now = monotonic()
        if self._listing is None or now - self._listing[0] > LISTING_SECONDS:
            self._listing = now, asyncio.get_running_loop().create_task(self._client.listing(ANSWER_SECONDS))
        return await asyncio.shield(self._listing[1])
