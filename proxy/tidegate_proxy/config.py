"""The files that a proxy follows: tables, keys and certificate. It uses each change while requests go on."""

import asyncio
import logging
import os
import ssl
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.x509 import load_pem_x509_certificate
from tidegate_contracts import proxy_process, routing
from tidegate_contracts.proxy_settings import ProxySettings

from .access.api_keys import ApiKeys, read_api_keys
from .access.authorizer import Authorizer
from .access.rules import Rules, build_rules
from .concurrency import WAITING_FOR_EACH
from .kinds import KINDS
from .pace import StoppedError, Yielder, no_full_collections
from .pools import Lookup, Pool
from .problems import TableError
from .residency.client import LeaseToken
from .residency.manager import LeaseManager, new_holder_name
from .routes import Routes
from .settings import Layout, Tunables
from .tables import read_access, read_routing
from .telemetry.meter import Meter
from .upstream.replica import Replica

log = logging.getLogger(__name__)


@dataclass(eq=False)
class WatchedFile:
    """A file or directory that can be replaced at any time. Its state is a fingerprint. ConfigMaps and Secrets swap a
    whole directory by a symbolic link, editors a file."""

    name: str
    path: Path
    _read: Callable[[Path], Any]
    _use: Callable[[Any], Awaitable[None]]
    generation: int = 0  # How many versions were used.
    failures: int = 0
    last_error: str = ""
    is_edited: bool = False  # Whether the checksum next to it is that of another text.
    _seen: object = None
    _is_unread: bool = False
    """Whether it could not be read. That can pass, for example if the process had too many open files."""

    async def load(self) -> None:
        """Read the file and use it. Raises TableError, and then the last version stays in use."""
        loop = asyncio.get_running_loop()
        self._seen = await loop.run_in_executor(None, self._fingerprint)
        self._is_unread = True
        try:
            data = await loop.run_in_executor(None, self._read, self.path)
        except OSError as error:
            raise TableError(f"it cannot be read: {error.strerror}") from None
        self._is_unread = False
        await self._use(data)
        self.is_edited = await loop.run_in_executor(None, self._differs, data)
        self.generation += 1
        self.last_error = ""

    async def look(self) -> None:
        """Load the file if it has changed. An invalid one is only logged and counted."""
        # In a thread: a directory can have thousands of files, and requests would wait.
        is_same = await asyncio.get_running_loop().run_in_executor(None, self._fingerprint) == self._seen
        if is_same and not self._is_unread:
            return
        try:
            await self.load()
        except TableError as error:
            if is_same and str(error) == self.last_error:
                return
            self.failures += 1
            self.last_error = str(error)
            log.error("%s was refused: %s. The last valid version stays in use", self.path, error)
        except StoppedError:
            return
        except Exception:  # a defect must not stop the following of other files
            self.failures += 1
            self.last_error = "internal error, see the log"
            log.exception("%s could not be used. The last valid version stays in use", self.path)
        else:
            log.info("%s was read again", self.path)

    def _differs(self, data: object) -> bool:
        try:
            checksum = (
                self.path.with_name(self.path.name + proxy_process.CHECKSUM).read_text("ascii", "replace").strip()
            )
        except OSError:
            return False
        return isinstance(data, bytes) and sha256(data).hexdigest() != checksum

    def _fingerprint(self) -> object:
        try:
            if not self.path.is_dir():
                stats = [(self.path.name, self.path.stat())]
            else:
                with os.scandir(self.path) as entries:
                    stats = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
            return sorted((name, stat.st_mtime_ns, stat.st_ino, stat.st_size) for name, stat in stats)
        except OSError as error:
            return error.errno


async def follow(watched: list[WatchedFile], seconds: float) -> None:
    """Look at all files every so many seconds, for ever."""
    while True:
        await asyncio.sleep(seconds)
        for each in watched:
            await each.look()


RELEASE_SECONDS = 1.0  # Timeout of giving all leases back at the end. The others expire.
REPLICAS_SECONDS = 5.0  # Seconds between two counts of the proxy's replicas.


class LiveConfig:
    """The state of all files, and the authorizer that uses it."""

    def __init__(self, settings: ProxySettings, layout: Layout, find: Lookup, meter: Meter, tunables: Tunables) -> None:
        self.routes = Routes(routing.RoutingTable(environment=settings.environment, servers=(), models=()), {})
        self.tls: ssl.SSLContext | None = None
        self.grpc_tls: ssl.SSLContext | None = None
        self.certificate_expires: float | None = None  # Unix time.
        self._access = routing.AccessTable(rate_limit=routing.RateLimit(requests_per_minute=1, burst=1))
        self._rules = Rules()
        self._keys: ApiKeys = {}
        domino = settings.domino_principal_url
        self.authorizer = Authorizer(self._access, self.routes, tunables=tunables, domino_principal_url=domino)
        self._settings, self._tunables = settings, tunables
        self._find = find
        self._meter = meter
        self.silenced: Callable[[Replica], None] = lambda _: None  # Called with each replica that stops responding.
        self._stop = threading.Event()  # Ends the reading of a table.
        self._leaving: set[asyncio.Task[None]] = set()
        self._lease_token = LeaseToken(layout.leases / proxy_process.LEASE_TOKEN_FILE)
        tables = layout.routing
        self.watched = [
            WatchedFile("routing", tables / proxy_process.ROUTING_FILE, Path.read_bytes, self._use_routing),
            WatchedFile("access", tables / proxy_process.ACCESS_FILE, Path.read_bytes, self._use_access),
        ]
        if settings.api_keys:
            self.watched.append(WatchedFile("api-keys", layout.api_keys, read_api_keys, self._use_keys))
        if settings.tls:
            self.watched.append(WatchedFile("certificate", layout.tls, _read_certificate, self._use_certificate))
        if settings.authorities:
            trust = self.authorizer.trust_authorities
            self.watched.append(WatchedFile("authorities", layout.authorities, _read_authorities, trust))

    async def load(self) -> None:
        """Read every file for the first time. Raises TableError, which names the file."""
        for each in self.watched:
            try:
                await each.load()
            except TableError as error:
                raise TableError(f"{each.path}: {error}") from None

    async def count_replicas(self, seconds: float = REPLICAS_SECONDS) -> None:
        """Count the replicas that share the rate limits, for ever. If that fails, keep the last number."""
        while True:
            try:
                found = await self._find(self._settings.replicas_host, proxy_process.HTTP_PORT)
            except OSError as error:
                log.warning("%s cannot be looked up: %s", self._settings.replicas_host, error)
            else:
                if number := len({address for _, address in found}):
                    self.authorizer.set_replicas(number)
            await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Stop following files, and give leases back. Nothing is in flight any more."""
        self._stop.set()
        for pool in self.routes.pools.values():
            pool.stop()
            self._leave(pool)
        if self._leaving:
            await asyncio.wait(set(self._leaving), timeout=RELEASE_SECONDS)
        await self.authorizer.close()

    async def _use_routing(self, data: bytes) -> None:
        with no_full_collections():
            before = self.routes.pools
            pace = Yielder(rests=bool(before), stop=self._stop)
            new = await asyncio.to_thread(read_routing, data, self.routes, pace)
            pools = {key: new.same.get(key) or self._pool(key[0], *each) for key, each in new.pools.items()}
            fresh = [pool for key, pool in pools.items() if before.get(key) is not pool]
            routes = await asyncio.to_thread(new.routes, pools, pace)
            await asyncio.gather(*(pool.refresh() for pool in fresh))
            self.routes = routes
            for server, model in self._meter.forget_models(routes.find):
                for route in routes.find(server, model):
                    route.http_count = route.grpc_count = None
            for pool in fresh:
                pool.start()
            self.authorizer.replace(self._access, self.routes, self._keys, self._rules)
            for key, pool in before.items():
                if pools.get(key) is not pool:
                    pool.stop()
                    self._leave(pool)

    def _pool(self, server: str, kind: str, config: routing.Pool) -> Pool:
        leases = None
        if config.lease_port is not None:
            seconds, most = self._settings.connect_timeout_seconds, self._settings.concurrency * WAITING_FOR_EACH
            token = self._lease_token.header
            leases = LeaseManager(server, config, new_holder_name(), self._meter, seconds, most, self._tunables, token)
        live = config.live_path.encode() if config.live_path else KINDS[kind].live_path
        index, speaks_grpc = KINDS[kind].index, KINDS[kind].speaks_v2

        def is_called(model: str) -> bool:
            routes = self.routes.find(server, model)
            return any(pool.config.name == config.name for route in routes for pool in route.pools)

        def expected() -> Collection[tuple[str, str]]:
            return self.routes.expected.get((server, config.name), ())

        find, tunables, silenced = self._find, self._tunables, lambda replica: self.silenced(replica)
        return Pool(
            server, config, live, find, leases, silenced, index, is_called, expected, tunables, speaks_grpc=speaks_grpc
        )

    def _leave(self, pool: Pool) -> None:
        if pool.leases is not None:
            task = asyncio.get_running_loop().create_task(pool.leases.leave())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _use_access(self, data: bytes) -> None:
        table = await asyncio.to_thread(read_access, data)
        self._rules = await asyncio.to_thread(build_rules, table.rules)
        self._access = table
        self.authorizer.replace(table, self.routes, self._keys, self._rules)

    async def _use_keys(self, keys: ApiKeys) -> None:
        self._keys = keys
        self.authorizer.replace(self._access, self.routes, keys, self._rules)

    async def _use_certificate(self, pair: tuple[Path, Path]) -> None:
        if self.tls is None or self.grpc_tls is None:
            self.tls, self.grpc_tls = _context(), _context("h2")
        try:
            self.tls.load_cert_chain(*pair, password=b"")  # new connections get the new one
            self.grpc_tls.load_cert_chain(*pair, password=b"")
            self.certificate_expires = _expires(pair[0])
        except OSError as error:  # replaced since the trial: the next look finds the new one
            raise TableError(f"it was replaced while it was read: {error.strerror}") from None


def _read_certificate(folder: Path) -> tuple[Path, Path]:
    pair = folder / "tls.crt", folder / "tls.key"
    try:
        # A trial, because an invalid one must not touch the one in use. The empty password avoids a prompt by OpenSSL.
        _context().load_cert_chain(*pair, password=b"")
    except ssl.SSLError as error:
        raise TableError(f"tls.crt and tls.key are not a certificate and its key: {error.reason}") from None
    return pair


def _expires(certificate: Path) -> float | None:
    """Return the Unix time at which a certificate expires. None if this library cannot read it, although TLS can."""
    try:
        return load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
    except ValueError:
        return None


def _read_authorities(folder: Path) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities and those in a directory, one file each."""
    context = ssl.create_default_context()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        try:
            context.load_verify_locations(path)
        except ssl.SSLError:
            raise TableError(f"{path.name} contains no certificates in PEM format") from None
    return context


def _context(protocol: str = "http/1.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([protocol])
    return context
