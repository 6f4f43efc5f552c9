"""The service: the core decides, a driver carries out, proxies are answered, all of it on one thread."""

import asyncio
import logging
import platform
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic

from tidegate_contracts import lease
from tidegate_contracts.eviction import EvictionSettings
from tidegate_contracts.lease import State
from tidegate_service.reasons import plain

from ..core.leases import JITTER
from ..core.messages import Answered, Command, Load, ModelSpec, PoolSettings, ServerInventory, Step, Ticket
from ..core.residency import Residency
from ..policies import registry
from ..staging.copying import StagingError
from ..staging.stager import Stager
from ..triton.memory import MemoryReading
from ..triton.repository import ModelFiles
from .catalog import Catalog
from .footprints import Footprints
from .metrics import Counts, tell
from .settings import SettingsError

JITTER_LEAST_SECONDS = 0.1  # At most so much is added at random to `retry_after`, with a share of it.
LOOK_SECONDS = 10.0  # Seconds between two looks at the repository; looks take a tenth of the time at most.
LOOK_MOST_SECONDS, LOOK_LEAST_SECONDS = 1.0, 0.1
"""How long an acquire of a cold model waits for a look at it, at most and at least; then what was seen last counts."""
LOOKS_AT_ONCE = 4
AFTER_DEFECT_SECONDS = 1.0
_TO_LOOK_AT = frozenset({State.UNKNOWN, State.COLD, State.QUARANTINED})
_FIXED: Mapping[str, Callable[[EvictionSettings], object]] = {
    "grpcTls": lambda settings: settings.grpc_tls,
    "staging": lambda settings: settings.staging and settings.staging.folder,
}
log = logging.getLogger(__name__)


class EvictionService:
    """The policy of one pool at one server."""

    def __init__(
        self,
        settings: EvictionSettings,
        footprints: Footprints,
        incarnation: str,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self.counts = Counts()
        self.footprints = footprints
        self.reading = MemoryReading()
        self.carry_out: Callable[[list[Command]], None] | None = None
        """Has the server do what the core orders; it is there before the first order."""
        self._catalog = Catalog(settings)
        self._seen: Mapping[str, ModelFiles] = {}
        self._specs: dict[str, ModelSpec] = {}
        self._chance = chance
        self._measures = True
        self._wake = asyncio.Event()
        self._looking = asyncio.Lock()
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._look_threads = ThreadPoolExecutor(LOOKS_AT_ONCE, "repository")  # a file system may hang
        self._told: EvictionSettings | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._futures: dict[int, asyncio.Future[lease.Granted | lease.Refusal]] = {}
        self._lost: tuple[str, str] | None = None
        """Where readings of the server that was lost came from, and which start of it that was."""
        self.residency = Residency(self._pool_settings(settings), incarnation, monotonic())
        self.stager = (
            None
            if settings.staging is None
            else Stager(settings.staging, lambda model: self._catalog.contents(model), _mounted(settings))
        )
        self._stagings: dict[int, asyncio.Task[None]] = {}  # Loads that wait for their files, by their numbers.
        self._copied: dict[int, float] = {}  # How many seconds loads under way waited for copies.

    # Settings and the repository

    def use(self, settings: EvictionSettings) -> None:
        """Take other settings over; raises SettingsError, and then all stays as it was."""
        for name, said in _FIXED.items():
            if said(settings) != said(self.settings):
                raise SettingsError(f"{name} cannot change at run time. Restart the pod")
        if self.stager is not None and settings.staging is not None:
            self.stager.settings, self.stager.repository = settings.staging, _mounted(settings)
        self.settings, self._catalog = settings, Catalog(settings)
        self._wake.set()  # which models there are is known once the repository was looked into

    def override(self, model: str, versions: tuple[int, ...]) -> str | None:
        """Return the configuration with which a load loads these versions, as `TritonRepository.override` does."""
        return self._catalog.repository.override(model, versions)

    async def look(self) -> None:
        """Read the repository, and tell the core what has changed."""
        async with self._looking:
            catalog, seen = self._catalog, self._seen

            def read() -> tuple[Mapping[str, ModelFiles], dict[str, ModelSpec]]:
                found = catalog.look(seen)
                return found, catalog.specs(found, self.footprints)

            found, specs = await asyncio.get_running_loop().run_in_executor(self._look_threads, read)
            if catalog is not self._catalog:
                return  # the settings have changed meanwhile: the next look is due at once
            changed = specs != self._specs or self.settings is not self._told
            self._seen, self._specs = found, specs
            if changed:
                self.configure()
            # A model that was taken from the settings has its name until it is unloaded, as that is counted.
            self.counts.forget(lambda model: model not in specs and self.residency.state(model) is State.UNKNOWN)

    async def follow_repository(self) -> None:
        """Look every few seconds, for ever, and at once when the settings have changed."""
        while True:
            begun = monotonic()
            await self.look()
            seconds = max(LOOK_SECONDS, 10 * (monotonic() - begun))
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            self._wake.clear()

    def configure(self) -> None:
        """Tell the core the settings and the models."""
        self._told = self.settings
        self._do(self.residency.configure(self._pool_settings(self.settings), self._specs, monotonic()))

    # Leases

    async def acquire(self, ask: lease.Acquire, gone: Callable[[], "asyncio.Task[None]"]) -> lease.Answer | None:
        """Answer within the caller's wait; None when it has hung up, which the task that `gone` returns waits for."""
        wait, room = ask.wait_seconds, ask.room_seconds
        if self.residency.state(ask.model) in _TO_LOOK_AT:
            asked = monotonic()
            wait = self.settings.wait_seconds if wait is None else wait
            await self._look_at(ask.model, max(LOOK_LEAST_SECONDS, min(LOOK_MOST_SECONDS, wait)))
            spent = monotonic() - asked
            wait, room = max(0.0, wait - spent), None if room is None else max(0.0, room - spent)
        spare = bool(ask.spare)
        step, answer = self.residency.acquire(ask.model, ask.holder, wait, monotonic(), room, spare=spare)
        granted = "hit"
        if isinstance(answer, Ticket):
            granted = "loaded"
            future = self._futures[answer.number] = asyncio.get_running_loop().create_future()
            self._do(step)
            hung_up = gone()
            try:
                await asyncio.wait([future, hung_up], return_when=asyncio.FIRST_COMPLETED)
            finally:
                hung_up.cancel()
                del self._futures[answer.number]
                if not future.done():  # the caller has hung up, or the policy ends
                    self.counts.acquires.labels("gone").inc()
                    self._do(self.residency.cancel(answer, monotonic()))
            if not future.done():
                return None
            answer = future.result()
        else:
            self._do(step)
            if spare and isinstance(answer, lease.Busy):
                return answer  # Nobody has called it: that is no want of room.
        self.counts.acquires.labels(granted if isinstance(answer, lease.Granted) else answer.outcome).inc()
        if isinstance(answer, lease.Busy):
            self.counts.busy.labels(answer.reason or "").inc()
            more = JITTER_LEAST_SECONDS + JITTER * answer.retry_after
            return answer.model_copy(update={"retry_after": answer.retry_after + self._chance() * more})
        return answer

    def renew(self, ask: lease.Renew) -> lease.Renewed:
        """Renew a holder's leases."""
        step, renewed = self.residency.renew(ask.holder, ask.incarnation, ask.models, monotonic())
        self._do(step)
        return renewed

    def release(self, ask: lease.Release) -> None:
        """End a holder's leases."""
        self._do(self.residency.release(ask.holder, ask.incarnation, ask.serials, monotonic(), ask.serials))

    def leave(self) -> None:
        """Grant no more leases; renewals go on."""
        self._do(self.residency.leave(monotonic()))

    def listing(self) -> lease.Listing:
        """Return what sits in the slice."""
        return self.residency.listing(monotonic(), platform.node())

    # What the driver reports, and asks

    def load_ended(self, number: int, error: str | None, measured_bytes: int | None, versions: tuple[int, ...]) -> None:
        """A load has ended: with an error, or with what memory grew by and the versions that are loaded."""
        why = None if error is None else plain(error)
        copied = self._copied.pop(number, 0.0)
        if self.stager is not None:
            self.stager.done(number, failed=bool(why))
        self._do(self.residency.load_ended(number, monotonic(), why, measured_bytes, versions, copied))

    def unload_ended(self, number: int, error: str | None) -> None:
        """An unload has ended: nothing of what it named is loaded, or why something is."""
        self._do(self.residency.unload_ended(number, monotonic(), None if error is None else plain(error)))

    def memory_read(self, reading: MemoryReading, why: str = "") -> None:
        """Memory was read, or cannot be: then an unload counts as soon as the index says so."""
        if why and self._measures:
            log.error("cannot read memory, so unloads count as freed when Triton reports them: %s", why)
        elif reading.source != self.reading.source:
            log.info("source of memory readings: %s", reading.source)
        self.reading = reading
        if self._measures is not (measures := reading.used_bytes is not None):
            self._measures = measures
            self.configure()
        if reading.used_bytes is not None:
            self._do(self.residency.memory(reading.used_bytes, monotonic()))

    def server_lost(self, why: str) -> None:
        """The server has ended, and with it all that was under way."""
        log.warning("the server was lost (%s): its models are cold, and its leases are void", why)
        self.counts.totals["triton_losses"].inc()
        self._lost = (self.reading.source, self.reading.server)
        self._stop_staging()
        self._do(self.residency.server_lost(monotonic()))

    def server_back(self, found: ServerInventory) -> None:
        """The server is there; with the first time the core begins."""
        log.info("the server is connected", extra={"said": {"found": asdict(found)}})
        same = bool(self.reading.server) and (self.reading.source, self.reading.server) == self._lost
        self._do(self.residency.recover(replace(found, same=same), monotonic()))

    def resident(self) -> frozenset[str]:
        """Return the models that the core takes for loaded."""
        return self.residency.resident

    def vanished(self, models: frozenset[str]) -> None:
        """Take models for unloaded that the server has dropped without an order."""
        log.error("the server dropped models without an order: %s", ", ".join(sorted(models)))
        self._do(self.residency.vanished(models, monotonic()))

    def is_busy(self) -> bool:
        """Tell whether a reading of memory would free room."""
        return self.residency.reading_wanted

    # The core's steps

    def tick(self) -> None:
        """Do what is due; after a defect, what is due later is done all the same."""
        try:
            self._do(self.residency.tick(monotonic()))
        except Exception:
            log.exception("the policy has a defect")
            self._timer = asyncio.get_running_loop().call_later(AFTER_DEFECT_SECONDS, self.tick)

    def _do(self, step: Step) -> None:
        for event in step.events:
            if isinstance(event, Answered):
                self._futures[event.ticket.number].set_result(event.answer)
            else:
                tell(event, self.counts, self.footprints, self._specs)
        for command in step.commands:
            if self.stager is not None and isinstance(command, Load) and not command.watch:
                self._stagings[command.number] = asyncio.create_task(self._staged(self.stager, command))
            else:
                self._order(command)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due := self.residency.next_deadline()) is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.001, due - monotonic()), self.tick)

    def _order(self, command: Command) -> None:
        assert self.carry_out is not None
        self.carry_out([command])

    async def _staged(self, stager: Stager, command: Load) -> None:
        """Have a load carried out once its files are near, or report why they cannot be."""
        number, why = command.number, ""
        try:
            self._copied[number] = await stager.ensure(number, command.model)
        except StagingError as error:
            why = str(error)
        except Exception as defect:
            log.exception("the policy has a defect")
            why = f"the policy has a defect. See its log: {defect!r}"
        del self._stagings[number]
        if why:
            self.load_ended(number, why, None, ())
        else:
            self._order(command)

    async def close(self) -> None:
        """End what is being staged."""
        tasks = list(self._stagings.values())
        self._stop_staging()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.stager is not None:
            await self.stager.close()

    def _stop_staging(self) -> None:
        """Forget the loads that wait for their files."""
        for task in self._stagings.values():
            task.cancel()
        self._stagings.clear()
        self._copied.clear()
        if self.stager is not None:
            self.stager.forget_loads()

    async def _look_at(self, model: str, seconds: float) -> None:
        """Have the core know what lies there now, before it is loaded; a look that takes longer goes on by itself."""
        if (looking := self._looks.get(model)) is None:
            looking = self._looks[model] = asyncio.create_task(self._look_anew(model))
            looking.add_done_callback(lambda _: self._looks.pop(model, None))
        await asyncio.wait({looking}, timeout=seconds)

    async def _look_anew(self, model: str) -> None:
        has_changed, loop = self._catalog.has_changed, asyncio.get_running_loop()
        try:
            if await loop.run_in_executor(self._look_threads, has_changed, model, self._seen):
                await self.look()
        except Exception:  # what was seen last counts
            log.exception("the policy has a defect")

    def _pool_settings(self, settings: EvictionSettings) -> PoolSettings:
        given = settings.model_dump(include={"capacity_bytes", "idle_seconds", "lease_seconds", "wait_seconds"})
        tuned = settings.tuning.model_dump(exclude_none=True)
        return PoolSettings(policy=registry.find(settings.policy), measures=self._measures, **given, **tuned)


def _mounted(settings: EvictionSettings) -> Path | None:
    """Return the repository if it is a folder, which the server can read, too; None for a bucket."""
    return None if "://" in settings.repository else Path(settings.repository)
