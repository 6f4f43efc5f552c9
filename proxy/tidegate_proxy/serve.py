"""The life of a proxy process, from reading its files to its last response."""

import asyncio
import gc
import logging
import math
import signal
import socket
import ssl
from collections.abc import Callable
from time import monotonic

from prometheus_client import CollectorRegistry
from tidegate_contracts.proxy_settings import ProxySettings
from tidegate_service.listening import AdminThread, listen

from .admin import MeterCollector, make_admin
from .app import make_app
from .config import LiveConfig, follow
from .grpc.server import GrpcServer
from .guests import AccountedConnection
from .http.connection import HttpServer
from .malloc import give_freed_memory_back, resident_bytes
from .pools import Lookup, lookup
from .servers import ServerQueries
from .settings import Layout, Tunables
from .shared_state import SharedState
from .telemetry.meter import Meter
from .tls import TlsHandshake

KEEP_ALIVE_SECONDS = 75.0  # Seconds for which a caller's idle connection stays open.
BACKLOG = 4096
GIVEN_BACK_BYTES = 16 << 20
"""Growth of the process, or drop of what callers hold, after which freed memory is returned."""
GIVE_BACK_SECONDS = 0.1  # Seconds between two checks for that.
PRESSED_ABOVE = 4  # Above this fraction of its limit, the process returns memory at once. Below, it pauses in between.
GIVEN_BACK_SECONDS = 2.0  # Seconds of such a pause, because returning memory delays other work.
ACCEPTED_AT_ONCE = 16  # New connections in one turn of the loop, which takes one of each listening socket.
LAST_BYTES_SECONDS = 0.5  # Seconds for connections to close when all is written.
LAST_SPANS_SECONDS = 2.0  # Timeout of the last export of spans.
log = logging.getLogger(__name__)


class Proxy:
    """All parts of one proxy process."""

    def __init__(
        self, settings: ProxySettings, layout: Layout, find: Lookup = lookup, tunables: Tunables = Tunables()
    ) -> None:
        self.settings = settings
        self.layout = layout
        self.meter = Meter(settings.metrics_models, settings.metrics_callers)
        self.config = LiveConfig(settings, layout, find, self.meter, tunables)
        self.shared = SharedState(settings, self.config.authorizer, self.meter, tunables)
        self.config.silenced = self.shared.replica_silent
        self.ports: dict[str, int] = {}  # Its ports, once it listens: http, grpc, admin.
        self.why_not_ready = ""  # Why it should get no more requests, or empty.
        self._tasks: list[asyncio.Task[None]] = []
        self._accepting: list[asyncio.Server] = []

    async def start(self) -> None:
        """Read every file and listen. After TableError or OSError, nothing listens."""
        await self.config.load()
        numbers = {"http": self.layout.http_port, "grpc": self.layout.grpc_port, "admin": self.layout.admin_port}
        listeners = {name: listen(self.layout.host, port, BACKLOG) for name, port in numbers.items()}
        self.ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
        loop = asyncio.get_running_loop()
        servers = ServerQueries(self.config, self.shared)
        self.http = HttpServer(self.shared, make_app(servers, lambda: self.why_not_ready, self.meter))
        await self._accept(listeners["http"], self.http.connection, self.config.tls)
        registry = CollectorRegistry()
        registry.register(MeterCollector(self.shared, self.config))
        admin = make_admin(lambda: self.why_not_ready, servers, registry, self.meter)
        self._admin = AdminThread(admin, listeners["admin"])
        self._admin.start()
        self.grpc = GrpcServer(self.shared, servers, self.layout.upstream_ca)
        await self._accept(listeners["grpc"], self.grpc.connection, self.config.grpc_tls)
        for work in (
            self.shared.sweep(),
            self._sweep_connections(),
            self._give_memory_back(),
            follow(self.config.watched, self.shared.tunables.file_seconds),
            self.config.count_replicas(),
            self.config.authorizer.tend(),
        ):
            self._tasks.append(loop.create_task(work))
        if self.shared.tracer is not None:
            self._tasks.append(loop.create_task(self.shared.tracer.export()))
        log.info("serving", extra={"data": {"ports": self.ports, "servers": [*self.config.routes.servers]}})
        gc.collect()
        gc.freeze()  # these objects stay, so no later collection needs to look at them

    async def _accept(
        self, listener: socket.socket, behind: Callable[[], AccountedConnection], tls: ssl.SSLContext | None
    ) -> None:
        """Accept connections, several in each turn of the loop: one behind thousands does not wait as many turns."""
        made = behind if tls is None else lambda: TlsHandshake(self.shared, tls, behind)
        for _ in range(ACCEPTED_AT_ONCE):
            loop = asyncio.get_running_loop()
            self._accepting.append(await loop.create_server(made, sock=listener.dup(), backlog=BACKLOG))
        listener.close()

    async def run_until_stopped(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await stop.wait()
        await self.stop()

    async def stop(self) -> None:
        """Become unready, serve callers that still come, finish requests in flight, and stop."""
        log.info("stopping: not ready from now on, %d requests in flight", len(self.shared.open_calls))
        self.why_not_ready = "the proxy is stopping"
        end = monotonic() + self.settings.drain_seconds
        self.shared.draining = True
        self.grpc.leave()
        await self._until_quiet(end)
        for each in self._accepting:
            each.close()
        self.grpc.close()
        for connection in list(self.http.connections):
            connection.shut_down()
        while (self.shared.open_calls or self._has_answers_left) and monotonic() < end:
            await asyncio.sleep(0.02)
        end = min(end, monotonic() + LAST_BYTES_SECONDS)  # the system, or TLS, may hold the last bytes
        while any(connection.transport.is_closing() for connection in self.http.connections) and monotonic() < end:
            await asyncio.sleep(0.02)
        for connection in list(self.http.connections):
            connection.transport.abort()
        await self.grpc.stop()
        for task in self._tasks:
            task.cancel()
        self.shared.call_log.flush(math.inf)
        if self.shared.tracer is not None:
            await self.shared.tracer.flush(LAST_SPANS_SECONDS)
        await self.config.close()
        self._admin.stop()
        log.info("stopped")

    async def _until_quiet(self, end: float) -> None:
        """Wait until no request has come for a while, because load balancers need time to notice the end."""
        quiet_since, seen = monotonic(), 0
        while monotonic() - quiet_since < self.shared.tunables.quiet_seconds and monotonic() < end:
            if (requests := self.http.answered + self.grpc.opened) != seen:
                quiet_since, seen = monotonic(), requests
            await asyncio.sleep(0.05)

    @property
    def _has_answers_left(self) -> bool:
        """Whether responses are incomplete, or not yet read by their callers."""
        return any(connection.is_answering or connection.unsent for connection in self.http.connections)

    async def _give_memory_back(self) -> None:
        """Return freed memory to the system when the process has grown or callers hold less. Memory that is freed in
        small pieces leaves gaps, which malloc keeps."""
        memory, most_held, before, rests_until = self.shared.memory, 0, resident_bytes(), 0.0
        while True:
            await asyncio.sleep(GIVE_BACK_SECONDS)
            held = memory.strangers.held + memory.callers.held
            most_held, now = max(most_held, held), resident_bytes()
            is_pressed = now > memory.whole // PRESSED_ABOVE
            if max(most_held - held, now - before) > GIVEN_BACK_BYTES and (is_pressed or monotonic() > rests_until):
                await asyncio.get_running_loop().run_in_executor(None, give_freed_memory_back)
                most_held, before, rests_until = held, resident_bytes(), monotonic() + GIVEN_BACK_SECONDS

    async def _sweep_connections(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            now = monotonic()
            try:
                for connection in list(self.http.connections):
                    connection.end_if_late(now, KEEP_ALIVE_SECONDS, self.shared.tunables.head_seconds)
                self.grpc.look()
            except Exception:  # the next sweep goes on
                log.exception("the sweep of connections failed")
