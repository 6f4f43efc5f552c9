"""Reads the routing and access tables, in a thread, because 10,000 models take long. An error has one line."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError
from tidegate_contracts import routing
from tidegate_contracts.message import first_error

from .bodies import UNREADABLE
from .kinds import KINDS
from .pace import Yielder
from .pools import Pool
from .problems import TableError
from .routes import Route, Routes

PoolKey = tuple[str, str]  # Server and pool.


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    """A routing table with undecoded models, because unchanged ones need not be decoded."""

    version: int
    environment: str
    servers: msgspec.Raw
    models: list[msgspec.Raw]


class _Part(msgspec.Struct):
    """The name of an entry's model. An entry without one is refused when it is decoded."""

    server: Any = ""
    name: Any = ""


@dataclass
class NewTable:
    """A new routing table: its servers, and each model with its text."""

    table: routing.RoutingTable
    pools: dict[PoolKey, tuple[str, routing.Pool]]  # The kind of each pool's server, and its entry.
    same: dict[PoolKey, Pool]  # Unchanged pools of the old table.
    models: deque[tuple[bytes, tuple[routing.Model, ...] | Route]]
    """The text of a model has its entries in all its pools. An unchanged model has its old route."""

    def routes(self, pools: Mapping[PoolKey, Pool], pace: Yielder) -> Routes:
        """Return the whole table, and free its entries one by one. Raises TableError."""
        made = Routes(self.table, pools)
        while self.models:
            pace.step()
            text, entry = self.models.popleft()
            if isinstance(entry, Route):
                made.keep(entry, text)
            else:
                made.add(entry, text)
        return made


def read_routing(data: bytes, before: Routes, pace: Yielder) -> NewTable:
    """Read a routing table that replaces another one. Raises TableError."""
    with _refusing():
        outline = msgspec.json.decode(data, type=_Outline)
        rest = {"version": outline.version, "environment": outline.environment, "models": ()}
        table = routing.RoutingTable.model_validate(rest | {"servers": msgspec.json.decode(outline.servers)})
        for server in table.servers:
            if server.kind not in KINDS:
                raise ValueError(f"server {server.name}: this proxy does not know the kind {server.kind!r}")
    pools = {(server.name, pool.name): (server.kind, pool) for server in table.servers for pool in server.pools}
    kind_of = {name: server.kind for name, server in before.servers.items()}
    same = {key: pool for key, pool in before.pools.items() if pools.get(key) == (kind_of[key[0]], pool.config)}
    found = deque[tuple[bytes, tuple[routing.Model, ...] | Route]]()
    places, parts, stays = routing.Places(table.servers), dict[Any, list[tuple[int, bytes]]](), set(same.values())
    for number, raw in enumerate(outline.models):
        pace.step()
        text = bytes(raw)
        parts.setdefault(_whose(text, number), []).append((number, text))
    for each in parts.values():
        pace.step()
        text = b",".join(text for _, text in each)
        route = before.by_source_text(text)
        if route is not None and all(pool in stays for pool in route.pools):
            found.append((text, route))
            continue
        models = []
        for number, part in each:
            with _refusing(f"models.{number}"):
                models.append(routing.Model.model_validate_json(part))
        with _refusing():
            places.check(models)
        found.append((text, tuple(models)))
    return NewTable(table, pools, same, found)


def _whose(text: bytes, number: int) -> object:
    """Return the model of an entry, or the entry's number if it has none."""
    with suppress(*UNREADABLE):
        named = msgspec.json.decode(text, type=_Part)
        if isinstance(named.server, str) and isinstance(named.name, str):
            return named.server, named.name
    return number


@contextmanager
def _refusing(where: str = "") -> Iterator[None]:
    """Raise TableError for what is wrong with a table, or with its part `where`."""
    try:
        yield
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TableError(f"it is not a routing table: {error}") from None
    except ValidationError as error:
        raise TableError(first_error(error, where)) from None
    except ValueError as error:
        raise TableError(str(error)) from None


def read_access(data: bytes) -> routing.AccessTable:
    """Return the access table of a file. Raises TableError."""
    with _refusing():
        return routing.AccessTable.model_validate_json(data)
