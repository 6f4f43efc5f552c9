"""The mounted tables: read, checked, and read again when they change; a bad one is refused, the last good one stays."""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError
from tidegate_contracts import routing

from .kinds import KINDS

LOOK_SECONDS = 1.0
"""Seconds between two looks at a file."""
_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]{0,252}")
AT_ONCE = 10
"""Models that are checked before requests have their turn again."""
log = logging.getLogger(__name__)


class TableError(Exception):
    """Says what is wrong with a table, in one line."""


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    """A routing table whose models are not looked at yet: checking 10 000 at once would hold every request up."""

    version: int
    environment: str
    servers: msgspec.Raw
    models: list[msgspec.Raw]


async def routing_table(data: bytes) -> routing.RoutingTable:
    """Return the routing table of a file; raises TableError. Other work goes on meanwhile."""
    where = ""
    try:
        outline = msgspec.json.decode(data, type=_Outline)
        models = []
        for number, model in enumerate(outline.models):
            where = f"models.{number}"
            models.append(routing.Model.model_validate_json(bytes(model)))
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        where = ""
        rest = {"version": outline.version, "environment": outline.environment, "models": ()}
        table = routing.RoutingTable.model_validate(rest | {"servers": msgspec.json.decode(outline.servers)})
        for server in table.servers:
            if server.kind not in KINDS:
                raise ValueError(f"server {server.name}: this proxy knows no kind {server.kind!r}")
            for pool in server.pools:
                _check_address(f"{server.name}/{pool.name}", pool)
        routing.check_models(table.servers, models)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TableError(f"it is no routing table: {error}") from None
    except ValidationError as error:
        raise TableError(_first(error, where)) from None
    except ValueError as error:
        raise TableError(str(error)) from None
    return table.model_copy(update={"models": tuple(models)})


async def access_table(data: bytes) -> routing.AccessTable:
    """Return the access table of a file; raises TableError."""
    try:
        return routing.AccessTable.model_validate_json(data)
    except ValidationError as error:
        raise TableError(_first(error)) from None


def _check_address(where: str, pool: routing.Pool) -> None:
    """Raise ValueError for what no name can be looked up of, and no connection be made to."""
    labels = pool.host.removesuffix(".").split(".")
    if not _HOST.fullmatch(pool.host) or not all(0 < len(label) < 64 for label in labels):
        raise ValueError(f"pool {where}: {pool.host!r} can be no host's name")
    for port in (pool.http_port, pool.grpc_port, pool.lease_port):
        if port is not None and not 0 < port < 1 << 16:
            raise ValueError(f"pool {where}: {port} can be no port")


def _first(error: ValidationError, where: str = "") -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    place = ".".join(map(str, [*([where] if where else []), *first["loc"]]))
    return f"{place or 'it'}: {first['msg'].removeprefix('Value error, ')}{more}"


class WatchedFile:
    """One file or folder that others may replace at any time.

    Its state is a fingerprint; ConfigMaps and Secrets swap a whole folder by a symbolic link, editors a file.
    """

    def __init__(
        self, name: str, path: Path, read: Callable[[Path], Any], use: Callable[[Any], Awaitable[None]]
    ) -> None:
        self.name = name
        self.path = path
        self.generation = 0
        """How many times it was taken over."""
        self.failures = 0
        self.last_error = ""
        self._read = read
        self._use = use
        self._seen: object = None
        self._is_unread = False
        """Whether it could not be read: a disk may fail, or a process have too many files open, and then not."""

    async def load(self) -> None:
        """Read it and use it; raises TableError, and then what was in use stays in use."""
        loop = asyncio.get_running_loop()
        self._seen = await loop.run_in_executor(None, self._fingerprint)
        self._is_unread = True
        try:
            data = await loop.run_in_executor(None, self._read, self.path)
        except OSError as error:
            raise TableError(f"it cannot be read: {error.strerror}") from None
        self._is_unread = False
        await self._use(data)
        self.generation += 1
        self.last_error = ""

    async def look(self) -> None:
        """Load it if it has changed; a bad one is told in the log and in the metrics, and changes nothing else."""
        # Not here: a folder may have thousands of files, and requests would wait for it.
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
            log.error("%s was refused, the last good one stays: %s", self.path, error)
        except Exception:  # a defect: the others are followed all the same
            self.failures += 1
            self.last_error = "the proxy has a defect; it is in the log"
            log.exception("%s could not be used, the last good one stays", self.path)
        else:
            log.info("%s was read again", self.path)

    def _fingerprint(self) -> object:
        try:
            if not self.path.is_dir():
                stats = [(self.path.name, self.path.stat())]
            else:
                with os.scandir(self.path) as entries:
                    stats = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
            return sorted((name, told.st_mtime_ns, told.st_ino, told.st_size) for name, told in stats)
        except OSError as error:
            return error.errno


async def follow(watched: list[WatchedFile]) -> None:
    """Look at all of them, for ever."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for each in watched:
            await each.look()
