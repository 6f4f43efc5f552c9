"""One eviction policy, from its first file to its last lease."""

import asyncio
import logging
import secrets
import signal
from concurrent.futures import Future
from pathlib import Path
from time import monotonic

import uvicorn
from tidegate_service.admin_thread import AdminThread
from tidegate_service.listening import listen

from .place import Place
from .serving.admin import Heartbeat, make_admin
from .serving.desk import Desk, read
from .serving.footprints import Footprints
from .serving.lease_api import make_lease_api
from .serving.secret import control_secret
from .serving.settings import LOOK_SECONDS, Followed, SettingsError
from .serving.view import View
from .serving.whole import write_whole
from .triton.agent import Agent
from .triton.control import Control
from .triton.memory import Memory

KEEP_ALIVE_SECONDS = 75
"""Seconds that a holder's connection may stand idle: longer than it takes to the next renewal."""
BACKLOG = 1024
LAST_SETTINGS = "eviction.json"
"""The last good settings, below the state folder: a policy that starts over a bad file goes on with them."""
log = logging.getLogger(__name__)


class EvictionPolicy:
    """Everything of one policy process."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ports: dict[str, int] = {}
        """Where it listens, once it does: lease, admin."""
        self.followed = Followed(place.settings, self._use)
        self._kept = place.state / LAST_SETTINGS
        self._unkept: bytes | None = None
        """Settings that are in use, and not yet there."""
        self._why_unkept = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._hurry = asyncio.Event()

    async def start(self) -> None:
        """Read every file and listen; raises SettingsError or OSError, and then nothing listens."""
        secret = control_secret(self.place.secret)
        footprints = Footprints(self.place.state)
        footprints.read()
        self._desk: Desk | None = None
        self._footprints = footprints
        try:
            self.followed.load()
        except SettingsError as error:
            self._go_on_with_kept(error)
        desk = self.desk
        await self._keep()
        await desk.look()
        listeners = {
            "lease": listen(self.place.host, self.place.lease_port, BACKLOG),
            "admin": listen(self.place.host, self.place.admin_port, BACKLOG),
        }
        self.ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
        self._loop = asyncio.get_running_loop()
        config = uvicorn.Config(
            make_lease_api(desk), log_config=None, access_log=False, lifespan="off", ws="none",
            server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=5,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        heartbeat = Heartbeat()
        self._admin = AdminThread(make_admin(self._ask_for_view, heartbeat.why_stalled), listeners["admin"])
        self._admin.start()
        tls = self.place.tls if self._settings_tls else None
        control = Control(self.place.triton_address, secret, tls)
        memory = Memory(control, self.place.metrics_url or None)
        self.agent = desk.agent = Agent(control, memory, desk.override, self.place.recycle, desk)
        self._serving = self._loop.create_task(self._server._serve([listeners["lease"]]))
        for work in (
            heartbeat.beat(),
            self._follow_settings(),
            self._keep_settings(),
            desk.follow_repository(),
            desk.keep_footprints(),
        ):
            self._tasks.append(self._loop.create_task(work))
        self._following = self._loop.create_task(self.agent.follow())
        self._tasks.append(self._following)
        log.info("serving", extra={"said": {"ports": self.ports, "triton": self.place.triton_address}})

    @property
    def desk(self) -> Desk:
        """Where everything comes together; there is one once the settings are read."""
        assert self._desk is not None
        return self._desk

    async def run_until_stopped(self) -> bool:
        """Serve until SIGTERM or SIGINT, then end in peace; at once when one comes again. False after a defect."""
        stop = asyncio.Event()

        def told() -> None:
            if stop.is_set():
                self._hurry.set()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, told)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({stopping, self._serving, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in (self._serving, *self._tasks):  # none of them ends by itself
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.critical("the policy has a defect, and ends", exc_info=error)
                self._hurry.set()
        is_well = stop.is_set()
        stopping.cancel()
        await self.stop()
        return is_well

    async def stop(self) -> None:
        """Grant nothing more, renew until no request is under way or Triton has gone, end."""
        desk = self.desk
        desk.leave()
        log.info("stopping: %d leases live, %d requests in flight", desk.residency.leases, desk.residency.in_flight)
        end = monotonic() + self.place.drain_seconds
        while desk.residency.in_flight and self.agent.is_up and monotonic() < end and not self._hurry.is_set():
            await asyncio.sleep(0.1)
        # Who finds our port closed takes every model for one that stays: first, let nothing be under way here.
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self.agent.close()
        self._server.should_exit = True
        await asyncio.wait({self._serving}, timeout=10)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if (text := self._footprints.changed()) is not None:
            self._footprints.write(text)
        self._admin.stop()
        log.info("stopped")

    # ---
    def _use(self, data: bytes) -> None:
        settings = read(data)
        if self._desk is None:
            self._settings_tls = settings.grpc_tls
            incarnation = secrets.token_hex(4)
            self._desk = Desk(settings, self._footprints, incarnation)
        else:
            if settings.grpc_tls is not self._settings_tls:
                raise SettingsError("grpcTls: it changes only when Triton is restarted, and the policy with it")
            self._desk.use(data)
        self._unkept = data

    async def _keep(self) -> None:
        """Keep the settings for a start over a bad file; while they cannot be written, say so, and try it again."""
        if (data := self._unkept) is None:
            return
        try:
            await asyncio.to_thread(write_whole, self._kept, data)
        except OSError as error:
            if str(error) != self._why_unkept:
                self._why_unkept = str(error)
                log.warning("%s cannot be written: over a bad settings file a restart fails: %s", self._kept, error)
        else:
            self._why_unkept = ""
            if self._unkept is data:
                self._unkept = None

    def _go_on_with_kept(self, error: SettingsError) -> None:
        try:
            self._use(self._kept.read_bytes())
        except (OSError, SettingsError):
            raise SettingsError(f"{self.place.settings}: {error}") from None
        self.followed.refused(error)

    async def _follow_settings(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.followed.look()

    async def _keep_settings(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._keep()

    def _ask_for_view(self) -> "Future[View]":
        async def look() -> View:
            desk, followed = self.desk, self.followed
            return View(
                desk.listing(), desk.counts, desk.reading, self.agent.is_up, desk.residency.leases,
                followed.generation, followed.failures, followed.last_error,
            )  # fmt: skip

        return asyncio.run_coroutine_threadsafe(look(), self._loop)


def folders(place: Place) -> None:
    """Make the folders that the policy writes to, where they are not there; raises OSError."""
    for folder in (place.control, place.state):
        Path(folder).mkdir(parents=True, exist_ok=True)
