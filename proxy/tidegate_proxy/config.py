"""What a proxy follows: tables, keys and certificate, each taken over as it changes, while requests go on."""

import asyncio
import logging
import ssl
from pathlib import Path

from tidegate_contracts import proxy_process, routing
from tidegate_contracts.proxy_settings import ProxySettings

from .access.api_keys import ApiKeys, ApiKeysError, read_api_keys
from .access.authorizer import Authorizer
from .access.rules import build_rules
from .concurrency import WAITING_FOR_EACH
from .pools import Lookup, Pool
from .residency.manager import LeaseManager, new_holder_name
from .routes import Routes, build_routes, pools_of
from .settings import Layout
from .tables import TableError, WatchedFile, access_table, routing_table
from .telemetry.meter import Meter

REPLICAS_SECONDS = 5.0
"""Seconds between two looks at how many replicas of the proxy there are."""
RELEASE_SECONDS = 1.0
"""Seconds that giving all leases back may take at the end: those that nobody takes run out."""
log = logging.getLogger(__name__)


class LiveConfig:
    """The state of all files, and the authorizer that decides by it."""

    def __init__(self, settings: ProxySettings, layout: Layout, find: Lookup, meter: Meter) -> None:
        self.routes = Routes(routing.RoutingTable(environment=settings.environment, servers=(), models=()), {})
        self.tls: ssl.SSLContext | None = None
        self.grpc_tls: ssl.SSLContext | None = None
        self._access = routing.AccessTable(rate_limit=routing.RateLimit(requests_per_minute=1, burst=1))
        self._keys = ApiKeys()
        self.authorizer = Authorizer(self._access, self.routes, domino_principal_url=settings.domino_principal_url)
        self._settings = settings
        self._find = find
        self._meter = meter
        self._leaving: set[asyncio.Task[None]] = set()
        tables = layout.routing
        self.watched = [
            WatchedFile("routing", tables / proxy_process.ROUTING_FILE, Path.read_bytes, self._use_routing),
            WatchedFile("access", tables / proxy_process.ACCESS_FILE, Path.read_bytes, self._use_access),
        ]
        if settings.api_keys:
            self.watched.append(WatchedFile("api-keys", layout.api_keys, _read_keys, self._use_keys))
        if settings.tls:
            self.watched.append(WatchedFile("certificate", layout.tls, _read_certificate, self._use_certificate))

    async def load(self) -> None:
        """Read every file for the first time; raises TableError naming it."""
        for each in self.watched:
            try:
                await each.load()
            except TableError as error:
                raise TableError(f"{each.path}: {error}") from None

    async def count_replicas(self) -> None:
        """Learn how many replicas share the rate limits, for ever. Where nobody can tell, the last number stays."""
        while True:
            try:
                found = await self._find(self._settings.replicas_host, proxy_process.HTTP_PORT)
            except OSError as error:
                log.warning("%s cannot be looked up: %s", self._settings.replicas_host, error)
            else:
                if number := len({address for _, address in found}):
                    self.authorizer.set_replicas(number)
            await asyncio.sleep(REPLICAS_SECONDS)

    async def close(self) -> None:
        """Follow nothing more, and give leases back: nothing is in flight any more."""
        for pool in self.routes.pools.values():
            pool.stop()
            self._leave(pool)
        if self._leaving:
            await asyncio.wait(set(self._leaving), timeout=RELEASE_SECONDS)
        await self.authorizer.close()

    async def _use_routing(self, data: bytes) -> None:
        table = await routing_table(data)
        before = self.routes.pools
        pools = pools_of(table, before, self._pool)
        fresh = [pool for key, pool in pools.items() if before.get(key) is not pool]
        await asyncio.gather(*(pool.refresh() for pool in fresh))
        self.routes = await build_routes(table, pools)
        for pool in fresh:
            pool.start()
        self.authorizer.replace(self._access, self.routes, self._keys)
        for key, pool in before.items():
            if pools.get(key) is not pool:
                pool.stop()
                self._leave(pool)

    def _pool(self, server: str, told: routing.Pool) -> Pool:
        leases = None
        if told.lease_port is not None:
            seconds, most = self._settings.connect_timeout_seconds, self._settings.concurrency * WAITING_FOR_EACH
            leases = LeaseManager(server, told, new_holder_name(), self._meter, seconds, most)
        return Pool(server, told, self._find, leases)

    def _leave(self, pool: Pool) -> None:
        if pool.leases is not None:
            task = asyncio.get_running_loop().create_task(pool.leases.leave())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _use_access(self, data: bytes) -> None:
        table = await access_table(data)
        rules = await build_rules(table.rules)
        self._access = table
        self.authorizer.replace(table, self.routes, self._keys, rules)

    async def _use_keys(self, keys: ApiKeys) -> None:
        self._keys = keys
        self.authorizer.replace(self._access, self.routes, keys)

    async def _use_certificate(self, pair: tuple[Path, Path]) -> None:
        if self.tls is None or self.grpc_tls is None:
            self.tls, self.grpc_tls = _context(), _context("h2")
        try:
            self.tls.load_cert_chain(*pair, password=_no_password)  # new connections get the new one
            self.grpc_tls.load_cert_chain(*pair, password=_no_password)
        except OSError as error:  # replaced since it was tried: the next look finds the new one
            raise TableError(f"it was replaced while it was read: {error.strerror}") from None


def _read_keys(folder: Path) -> ApiKeys:
    try:
        return read_api_keys(folder)
    except ApiKeysError as error:
        raise TableError(str(error)) from None


def _read_certificate(folder: Path) -> tuple[Path, Path]:
    pair = folder / "tls.crt", folder / "tls.key"
    try:
        # On trial: one that does not fit must not touch the one in use. A key is asked no password for.
        _context().load_cert_chain(*pair, password=_no_password)
    except ssl.SSLError as error:
        raise TableError(f"tls.crt and tls.key are no certificate and its key: {error.reason}") from None
    return pair


def _no_password() -> bytes:
    return b""


def _context(protocol: str = "http/1.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([protocol])
    return context
