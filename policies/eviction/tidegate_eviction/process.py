"""The eviction policy as a process: its files and its server, its start, and its end."""

import asyncio
import logging
import secrets
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

import uvicorn
from tidegate_contracts import eviction_process, triton
from tidegate_service.listening import AdminThread, listen

from .driver import TritonDriver
from .files import kept_secret
from .serving.admin import Heartbeat, make_admin
from .serving.callers import Callers
from .serving.footprints import Footprints
from .serving.lease_api import make_lease_api
from .serving.metrics import Snapshot
from .serving.service import EvictionService
from .serving.settings import SettingsFile, read
from .triton.control import TritonControl
from .triton.memory import MemoryReader

KEEP_ALIVE_SECONDS = 75  # The longest idle time of a holder's connection: longer than the time between renewals.
BACKLOG = 1024
LAST_SETTINGS = "eviction.json"
"""The last valid settings, in the state directory. A policy that starts with an invalid file uses them."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServeOptions:
    """Paths and addresses. Port 0 is any free port, and an empty host is every address."""

    host: str = ""
    lease_port: int = eviction_process.LEASE_PORT
    admin_port: int = eviction_process.ADMIN_PORT
    server: str = f"127.0.0.1:{triton.GRPC_PORT}"
    drain_seconds: float = 30.0
    settings: Path = Path(eviction_process.SETTINGS_ROOT, eviction_process.SETTINGS_FILE)
    control: Path = Path(eviction_process.CONTROL_ROOT)
    state: Path = Path(eviction_process.STATE_ROOT)
    cluster: Path = Path(eviction_process.CLUSTER_ROOT)
    tls: Path = Path(triton.TLS_ROOT)
    """The directory of Triton's gRPC certificate and its authority, used if the settings have `grpcTls`."""


async def every_second(work: Callable[[], Awaitable[None] | None]) -> None:
    """Do `work` every second."""
    while True:
        if (doing := work()) is not None:
            await doing
        await asyncio.sleep(1.0)


class EvictionPolicy:
    """One policy process."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.ports: dict[str, int] = {}
        self.settings = SettingsFile(options.settings, options.state / LAST_SETTINGS, self._use)
        self._footprints = Footprints(options.state)
        self._service: EvictionService | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._hurry = asyncio.Event()

    async def start(self) -> None:
        """Read all files, then listen. Raises SettingsError or OSError before it listens."""
        options = self.options
        for folder in (options.control, options.state):
            folder.mkdir(parents=True, exist_ok=True)
        secret = kept_secret(options.control / Path(eviction_process.CONTROL_SECRET_FILE).name)
        self._callers = callers = Callers(options.cluster, options.state)
        callers.keys.start()
        self._footprints.read()
        self.settings.start()
        service = self.service
        if service.stager is not None:
            service.stager.open()
        await service.look()
        listeners = {
            "lease": listen(options.host, options.lease_port, BACKLOG),
            "admin": listen(options.host, options.admin_port, BACKLOG),
        }
        self.ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
        self._loop = asyncio.get_running_loop()
        config = uvicorn.Config(
            make_lease_api(service, callers), log_config=None, access_log=False, lifespan="off", ws="none",
            server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=5,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        # `run_until_stopped` handles the signals.
        self._server.capture_signals = nullcontext  # type: ignore[assignment, method-assign]
        heartbeat = Heartbeat()
        recycle = options.control / Path(eviction_process.RECYCLE_FILE).name
        control = TritonControl(options.server, secret, options.tls if service.settings.grpc_tls else None)
        self.driver = TritonDriver(control, MemoryReader(control), recycle, service)
        service.carry_out = self.driver.carry_out
        # Triton starts when it sees this port, so the control directory must be complete here.
        self._admin = AdminThread(make_admin(self._snapshot, heartbeat.why_stalled), listeners["admin"])
        self._admin.start()
        self._serving = self._loop.create_task(self._server.serve([listeners["lease"]]))
        self._acting = [self._loop.create_task(self.driver.follow())]
        self._tasks = [
            *self._acting,
            *map(self._loop.create_task, (service.follow_repository(), callers.follow())),
        ]
        # On a thread, because importing a custom policy can take long.
        look = partial(asyncio.to_thread, self.settings.look)
        for work in (heartbeat.beat, look, self._footprints.keep):
            self._tasks.append(self._loop.create_task(every_second(work)))
        log.info("serving", extra={"data": {"ports": self.ports}})

    @property
    def service(self) -> EvictionService:
        """The service, which exists after the settings were read."""
        assert self._service is not None
        return self._service

    async def run_until_stopped(self) -> bool:
        """Serve until SIGTERM or SIGINT, then drain. A second signal skips that. Return False after a defect."""
        stop = asyncio.Event()

        def stop_or_hurry() -> None:
            if stop.is_set():
                self._hurry.set()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, stop_or_hurry)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({stopping, self._serving, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in (self._serving, *self._tasks):  # None of them ends without a defect.
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.critical("the policy ends because of a defect", exc_info=error)
                self._hurry.set()
        is_well = stop.is_set()
        stopping.cancel()
        await self.stop()
        return is_well

    async def stop(self) -> None:
        """Grant no new leases, renew until no request is in flight or the server has ended, then end."""
        service, residency = self.service, self.service.residency
        service.leave()
        log.info("stopping: %d live leases, %d requests in flight", residency.leases, residency.in_flight)
        end = monotonic() + self.options.drain_seconds
        while residency.in_flight and self.driver.is_up and monotonic() < end and not self._hurry.is_set():
            await asyncio.sleep(0.1)
        # A proxy that finds the lease port closed assumes that every model stays loaded. So no load or unload may be
        # in progress when the port closes.
        for task in self._acting:
            task.cancel()
        await asyncio.gather(*self._acting, return_exceptions=True)
        await service.close()
        await self.driver.close()
        self._server.should_exit = True
        await asyncio.wait({self._serving}, timeout=10)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._footprints.keep()
        self._admin.stop()
        log.info("stopped")

    def _use(self, data: bytes) -> None:
        settings = read(data)
        if self._service is None:
            self._service = EvictionService(settings, self._footprints, secrets.token_hex(4))
            return

        async def use() -> None:
            self.service.use(settings)

        asyncio.run_coroutine_threadsafe(use(), self._loop).result()

    def _snapshot(self) -> "Future[Snapshot]":
        async def look() -> Snapshot:
            service, settings = self.service, self.settings
            return Snapshot(
                service.listing(), service.counts, service.reading, self.driver.is_up, self._callers.keys.known,
                service.residency.leases, settings.last_error,
                service.residency.load_seconds,
                None if service.stager is None else service.stager.snapshot(),
            )  # fmt: skip

        return asyncio.run_coroutine_threadsafe(look(), self._loop)
