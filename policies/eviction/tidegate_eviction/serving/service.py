"""The service. The core decides, a driver carries out its commands, and proxies get responses, all on one thread."""

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
from .metrics import Counts, observe
from .settings import SettingsError

JITTER_LEAST_SECONDS = 0.1  # The least random addition to `retry_after`, in addition to a share of it.
LOOK_SECONDS = 10.0  # The least interval between reads of the repository. Reads take at most a tenth of the time.
LOOK_LEAST_SECONDS = 0.1
READS_AT_ONCE = 4
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
        most_look_seconds: float = 1.0,
        after_defect_seconds: float = 1.0,
    ) -> None:
        """For a read of a cold model's files, an acquire waits at most `most_look_seconds`, then uses the last read."""
        self.settings = settings
        self.counts = Counts()
        self.footprints = footprints
        self.reading = MemoryReading()
        self.carry_out: Callable[[list[Command]], None] | None = None
        """Carries out the core's commands at the server. It is set before the first command."""
        self._catalog = Catalog(settings)
        self._seen: Mapping[str, ModelFiles] = {}
        self._specs: dict[str, ModelSpec] = {}
        self._chance, self._after_defect_seconds = chance, after_defect_seconds
        self._most_look_seconds = most_look_seconds
        self._measures = True
        self._wake = asyncio.Event()
        self._looking = asyncio.Lock()
        self._reads: dict[str, asyncio.Task[None]] = {}
        self._read_threads = ThreadPoolExecutor(READS_AT_ONCE, "repository")  # A file system can hang.
        self._configured: EvictionSettings | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._futures: dict[int, asyncio.Future[lease.Granted | lease.Refusal]] = {}
        self._lost: tuple[str, str] | None = None
        """The source of the lost server's readings, and the start of the server."""
        self.residency = Residency(self._pool_settings(settings), incarnation, monotonic())
        self.stager = (
            None
            if settings.staging is None
            else Stager(settings.staging, lambda model: self._catalog.contents(model), _mounted(settings))
        )
        self._stagings: dict[int, asyncio.Task[None]] = {}  # Loads that wait for their files, by number.
        self._copied: dict[int, float] = {}  # Seconds that loads in progress waited for copies.

    # Settings and the repository

    def use(self, settings: EvictionSettings) -> None:
        """Use other settings. Raises SettingsError without a change."""
        for name, value in _FIXED.items():
            if value(settings) != value(self.settings):
                raise SettingsError(f"{name} cannot change at run time. Restart the pod")
        if self.stager is not None and settings.staging is not None:
            self.stager.settings, self.stager.repository = settings.staging, _mounted(settings)
        self.settings, self._catalog = settings, Catalog(settings)
        self._wake.set()  # The models are known after the next read of the repository.

    def override(self, model: str, versions: tuple[int, ...]) -> str | None:
        """Return the configuration with which a load loads these versions (see `TritonRepository.override`)."""
        return self._catalog.repository.override(model, versions)

    async def look(self) -> None:
        """Read the repository, and give changes to the core."""
        async with self._looking:
            catalog, seen = self._catalog, self._seen

            def read() -> tuple[Mapping[str, ModelFiles], dict[str, ModelSpec]]:
                found = catalog.look(seen)
                return found, catalog.specs(found, self.footprints)

            found, specs = await asyncio.get_running_loop().run_in_executor(self._read_threads, read)
            if catalog is not self._catalog:
                return  # The settings changed meanwhile, so the next read follows immediately.
            changed = specs != self._specs or self.settings is not self._configured
            self._seen, self._specs = found, specs
            if changed:
                self.configure()
            # A model that left the settings keeps its name until its unload is counted.
            self.counts.forget(lambda model: model not in specs and self.residency.state(model) is State.UNKNOWN)

    async def follow_repository(self) -> None:
        """Read the repository every few seconds, and immediately after a change of the settings."""
        while True:
            begun = monotonic()
            await self.look()
            seconds = max(LOOK_SECONDS, 10 * (monotonic() - begun))
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            self._wake.clear()

    def configure(self) -> None:
        self._configured = self.settings
        self._do(self.residency.configure(self._pool_settings(self.settings), self._specs, monotonic()))

    # Leases

    async def acquire(self, request: lease.Acquire, gone: Callable[[], "asyncio.Task[None]"]) -> lease.Answer | None:
        """Respond within the caller's wait. None: it has disconnected, which the task of `gone` detects."""
        wait, room = request.wait_seconds, request.room_seconds
        if self.residency.state(request.model) in _TO_LOOK_AT:
            begun = monotonic()
            wait = self.settings.wait_seconds if wait is None else wait
            await self._look_at(request.model, max(LOOK_LEAST_SECONDS, min(self._most_look_seconds, wait)))
            spent = monotonic() - begun
            wait, room = max(0.0, wait - spent), None if room is None else max(0.0, room - spent)
        spare = bool(request.spare)
        step, answer = self.residency.acquire(request.model, request.holder, wait, monotonic(), room, spare=spare)
        granted = "loaded" if isinstance(answer, Ticket) else "hit"
        if isinstance(answer, Ticket):
            future = self._futures[answer.number] = asyncio.get_running_loop().create_future()
            self._do(step)
            hung_up = gone()
            try:
                await asyncio.wait([future, hung_up], return_when=asyncio.FIRST_COMPLETED)
            finally:
                hung_up.cancel()
                del self._futures[answer.number]
                if not future.done():  # The caller has disconnected, or the policy ends.
                    self.counts.acquires.labels("gone").inc()
                    self._do(self.residency.cancel(answer, monotonic()))
            if not future.done():
                return None
            answer = future.result()
        else:
            self._do(step)
            if spare and isinstance(answer, lease.Busy):
                return answer  # No call needs it, so it does not count as a lack of memory.
        self.counts.acquires.labels(granted if isinstance(answer, lease.Granted) else answer.outcome).inc()
        if isinstance(answer, lease.Busy):
            self.counts.busy.labels(answer.reason or "").inc()
            more = JITTER_LEAST_SECONDS + JITTER * answer.retry_after
            return answer.model_copy(update={"retry_after": answer.retry_after + self._chance() * more})
        return answer

    def renew(self, request: lease.Renew) -> lease.Renewed:
        step, renewed = self.residency.renew(request.holder, request.incarnation, request.models, monotonic())
        self._do(step)
        return renewed

    def release(self, request: lease.Release) -> None:
        holder, incarnation, serials = request.holder, request.incarnation, request.serials
        self._do(self.residency.release(holder, incarnation, serials, monotonic(), serials))

    def leave(self) -> None:
        """Grant no more leases, but renew them."""
        self._do(self.residency.leave(monotonic()))

    def listing(self) -> lease.Listing:
        return self.residency.listing(monotonic(), platform.node())

    # Reports and queries of the driver

    def load_ended(self, number: int, error: str | None, measured_bytes: int | None, versions: tuple[int, ...]) -> None:
        """Report the end of a load: its error, or the growth of memory and the loaded versions."""
        why = None if error is None else plain(error)
        copied = self._copied.pop(number, 0.0)
        if self.stager is not None:
            self.stager.done(number, failed=bool(why))
        self._do(self.residency.load_ended(number, monotonic(), why, measured_bytes, versions, copied))

    def unload_ended(self, number: int, error: str | None) -> None:
        """Report the end of an unload: none of its models is loaded, or the error."""
        self._do(self.residency.unload_ended(number, monotonic(), None if error is None else plain(error)))

    def memory_read(self, reading: MemoryReading, why: str = "") -> None:
        """Report a reading of memory, or that there is none: an unload then counts as freed when the index shows it."""
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
        """Report that the server has ended, with all its work."""
        log.warning("the server was lost (%s): its models are cold, and its leases are void", why)
        self.counts.totals["triton_losses"].inc()
        self._lost = (self.reading.source, self.reading.server)
        self._stop_staging()
        self._do(self.residency.server_lost(monotonic()))

    def server_back(self, found: ServerInventory) -> None:
        """Report that the server is connected. The first report starts the core."""
        log.info("the server is connected", extra={"data": {"found": asdict(found)}})
        same = bool(self.reading.server) and (self.reading.source, self.reading.server) == self._lost
        self._do(self.residency.recover(replace(found, same=same), monotonic()))

    def resident(self) -> frozenset[str]:
        """Return the models that the core considers loaded."""
        return self.residency.resident

    def vanished(self, models: frozenset[str]) -> None:
        """Report models that the server dropped without an order."""
        log.error("the server dropped models without an order: %s", ", ".join(sorted(models)))
        self._do(self.residency.vanished(models, monotonic()))

    def is_busy(self) -> bool:
        """Return whether a reading would free memory."""
        return self.residency.reading_wanted

    # The core's steps

    def tick(self) -> None:
        """Process deadlines, and continue after a defect."""
        try:
            self._do(self.residency.tick(monotonic()))
        except Exception:
            log.exception("the policy has a defect")
            self._timer = asyncio.get_running_loop().call_later(self._after_defect_seconds, self.tick)

    def _do(self, step: Step) -> None:
        for event in step.events:
            if isinstance(event, Answered):
                self._futures[event.ticket.number].set_result(event.answer)
            else:
                observe(event, self.counts, self.footprints, self._specs)
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
        """Carry out a load when its files are cached, or report why they cannot be."""
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
        """Stop copying files."""
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
        """Give a model's present files to the core before its load. A longer read continues in the background."""
        if (looking := self._reads.get(model)) is None:
            looking = self._reads[model] = asyncio.create_task(self._look_again(model))
            looking.add_done_callback(lambda _: self._reads.pop(model, None))
        await asyncio.wait({looking}, timeout=seconds)

    async def _look_again(self, model: str) -> None:
        has_changed, loop = self._catalog.has_changed, asyncio.get_running_loop()
        try:
            if await loop.run_in_executor(self._read_threads, has_changed, model, self._seen):
                await self.look()
        except Exception:  # The last read counts.
            log.exception("the policy has a defect")

    def _pool_settings(self, settings: EvictionSettings) -> PoolSettings:
        given = settings.model_dump(include={"capacity_bytes", "idle_seconds", "lease_seconds", "wait_seconds"})
        tuned = settings.tuning.model_dump(exclude_none=True)
        return PoolSettings(policy=registry.find(settings.policy), measures=self._measures, **given, **tuned)


def _mounted(settings: EvictionSettings) -> Path | None:
    """Return the repository if it is a directory, which the server can read, too. None: a bucket."""
    return None if "://" in settings.repository else Path(settings.repository)
