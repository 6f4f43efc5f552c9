"""A proxy in the test's own event loop, the replicas of the test, and callers that send raw HTTP."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from tidegate_contracts import routing
from tidegate_contracts.proxy_settings import ProxySettings
from tidegate_proxy.access.api_keys import new_key
from tidegate_proxy.pools import Address
from tidegate_proxy.serve import Proxy
from tidegate_proxy.settings import Layout, Tunables
from tidegate_service.listening import AdminThread

from lab.local_plane.proxy import SETTINGS, write_tables

from ..rigs.tables import access_table, write_key
from .upstream import Act, Upstream, headers_of, upstream

KEY = new_key()
MODEL = "resnet"
PATH = f"/v2/models/{MODEL}/infer"
BODY = b'{"inputs":[]}'
ENVELOPE = b'{"inference_server_name":"vision","model_name":"resnet","payload":%b}'  # The body of `/predict`.


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        if self.headers.get("content-type") != "application/problem+json":
            return ""
        return str(self.json()["type"]).rpartition("/")[2]


@dataclass
class Caller:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    last_read: Callable[[], float] = lambda: 0.0  # When the proxy last read from a caller.
    body: bytes = b""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_apart(self, data: bytes) -> None:
        """Send a part, and wait until the proxy has read it."""
        before = self.last_read()
        await self.send(data)
        await until(lambda: self.last_read() > before)

    async def reply(self) -> Reply:
        """Read a response. Raises asyncio.IncompleteReadError if it is truncated."""
        status, lines = await self.head()
        headers = headers_of(lines)
        await self.read_body(status, headers)
        return Reply(status, headers, self.body)

    async def head(self) -> tuple[int, list[str]]:
        line, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        return int(line.split()[1]), lines

    async def read_body(self, status: int, headers: dict[str, str]) -> None:
        """Read the body of a response. If it is truncated, `body` has the received part."""
        self.body = b""
        if status in (204, 304):
            return
        if headers.get("transfer-encoding") == "chunked":
            while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
                self.body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        elif "content-length" in headers:
            self.body = await self.reader.readexactly(int(headers["content-length"]))
        elif headers.get("connection") == "close":
            self.body = await self.reader.read()

    async def ended(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


def request(path: str = PATH, body: bytes = BODY, method: str = "POST", key: str | None = KEY, **headers: str) -> bytes:
    """Return a request. Header names have underscores instead of dashes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: proxy"]
    lines += [f"X-API-Key: {key}"] if key else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}"] if method == "POST" and "Transfer_Encoding" not in headers else []
    return "\r\n".join([*lines, "", ""]).encode() + (body if method == "POST" else b"")


RIG = Tunables(file_seconds=3600)
"""Only the test looks at the proxy's files: two checks at once would count a change twice, or end too early."""
METADATA = request(f"/v2/models/{MODEL}", method="GET")


@dataclass
class RunningProxy:
    """A proxy, its files, the addresses of its pool's name, and the replica that `served` starts."""

    proxy: Proxy
    root: Path
    addresses: list[Address] = field(default_factory=list)
    replica: Upstream = field(default_factory=Upstream)

    @asynccontextmanager
    async def caller(self, side: str = "http") -> AsyncIterator[Caller]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.ports[side], limit=1 << 26)
        try:
            yield Caller(reader, writer, self.last_read)
        finally:
            writer.transport.abort()

    def last_read(self) -> float:
        return max((each.last_read for each in self.proxy.http.connections), default=0.0)

    async def ask(self, data: bytes | None = None, seconds: float = 20, side: str = "http") -> Reply:
        async with self.caller(side) as caller, asyncio.timeout(seconds):
            await caller.send(request() if data is None else data)
            return await caller.reply()

    async def admin(self, path: str) -> tuple[int, list[str]]:
        reply = await self.ask(request(path, method="GET"), side="admin")
        return reply.status, reply.body.decode().splitlines()

    def write(self, name: str, text: str) -> None:
        """Replace a table atomically, as Kubernetes does with a ConfigMap."""
        (self.root / "new").write_text(text)
        os.replace(self.root / "new", self.root / "routing" / name)

    def leads_to(self, *replicas: Upstream | int | Address) -> None:
        self.addresses[:] = [address_of(each) for each in replicas]

    async def look_up(self) -> None:
        for pool in self.proxy.config.routes.pools.values():
            await pool.refresh()

    @property
    def pool(self) -> Any:
        return next(iter(self.proxy.config.routes.pools.values()))


async def until(there: object, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not there():  # type: ignore[operator]
            await asyncio.sleep(0.01)


async def standing_still(value: Callable[[], int]) -> int:
    """Return a growing number when it has not grown for half a second."""
    before = -1
    while (now := value()) != before:
        before = now
        await asyncio.sleep(0.5)
    return now


def address_of(replica: Upstream | int | Address) -> Address:
    if isinstance(replica, tuple):
        return replica
    return socket.AF_INET, ("127.0.0.1", replica if isinstance(replica, int) else replica.port)


def settings(**more: Any) -> ProxySettings:
    usual = {"body_limit_bytes": 1_000_000, "concurrency": 64, "request_timeout_seconds": 10, "drain_seconds": 3}
    return ProxySettings.model_validate(SETTINGS | usual | {"replicas_host": "proxies", "api_keys": True} | more)


def model(
    name: str = MODEL, shares: Mapping[int, int] = MappingProxyType({}), server: str = "vision", **more: Any
) -> routing.Model:
    versions = tuple(routing.VersionShare(version=version, weight=weight) for version, weight in shares.items())
    return routing.Model.model_validate({"name": name, "server": server, "pool": "main", "versions": versions} | more)


def routing_table(
    models: Sequence[str | routing.Model] = (MODEL,), *more: Mapping[str, Any], **pool: Any
) -> routing.RoutingTable:
    """Return a table with these models of one server, by default in its pool `main`. `pool` are the settings of that
    pool, `more` those of other pools."""
    usual = {"name": "main", "host": "pool.test", "http_port": 8000, "grpc_port": 8001, "loading": "preload"} | pool
    pools = tuple(routing.Pool.model_validate({**usual, **each}) for each in ({}, *more))
    server = routing.Server(name="vision", kind="triton", pools=pools)
    found = tuple(model(each) if isinstance(each, str) else each for each in models)
    return routing.RoutingTable(environment="test", servers=(server,), models=found)


@asynccontextmanager
async def running_proxy(
    root: Path,
    *replicas: Upstream | int | Address,
    models: Sequence[str | routing.Model] = (MODEL,),
    table: routing.RoutingTable | None = None,
    access: routing.AccessTable | None = None,
    kind: type[RunningProxy] = RunningProxy,
    hosts: Mapping[str, Upstream] = MappingProxyType({}),
    tunables: Tunables = RIG,
    **more: Any,
) -> AsyncIterator[RunningProxy]:
    """Run a proxy with these replicas, and those at the hosts of other pools, until the block ends."""
    root.mkdir(exist_ok=True)
    write_tables(root, table or routing_table(models), access or access_table())
    write_key(root, KEY)
    addresses: list[Address] = []

    async def find(host: str, _: int) -> list[Address]:
        others = {name: [address_of(each)] for name, each in hosts.items() if each.server is not None}
        return {"pool.test": list(addresses), "proxies": [address_of(1)], **others}.get(host, [])

    tls, keys, authorities, upstream_ca = (root / each for each in ("tls", "api-keys", "authorities", "upstream-ca"))
    place = Layout(root / "routing", tls, keys, authorities, upstream_ca, "127.0.0.1", 0, 0, 0)
    made = kind(Proxy(settings(**more), place, find, tunables), root, addresses)
    made.leads_to(*replicas)
    await made.proxy.start()
    try:
        yield made
    finally:
        made.proxy.settings = made.proxy.settings.model_copy(update={"drain_seconds": 0})
        with patch.object(AdminThread, "stop", _leave):
            await made.proxy.stop()


def _leave(admin: AdminThread) -> None:
    """Let the thread of an admin port end in the background, because uvicorn takes 0.2 s and many tests have one."""
    admin._server.should_exit = True


@asynccontextmanager
async def served(root: Path, act: Act | None = None, **more: Any) -> AsyncIterator[RunningProxy]:
    async with upstream(act) as replica, running_proxy(root, replica, **more) as made:
        made.replica = replica
        yield made
