"""Reads the routing and access tables: what is wrong with one is told in a line, and many models are read by turns."""

from collections import deque
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError
from tidegate_contracts import routing
from tidegate_contracts.message import first_error

from .kinds import KINDS
from .pace import Pace
from .pools import Pool
from .problems import TableError
from .routes import Route, Routes

_Entry = tuple[routing.Model, ...] | Route


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    """A routing table whose models are not looked at yet: checking 10 000 at once would hold every request up."""

    version: int
    environment: str
    servers: msgspec.Raw
    models: list[msgspec.Raw]


class _Part(msgspec.Struct):
    """Of which model something stands in a table; what is of none is refused when it is read."""

    server: Any = ""
    name: Any = ""


@dataclass
class NewTable:
    """A routing table that is being read: its servers, and the texts of its models."""

    table: routing.RoutingTable
    texts: list[msgspec.Raw]

    @classmethod
    def read(cls, data: bytes) -> "NewTable":
        """Read all but the models; raises TableError."""
        with _refusing():
            outline = msgspec.json.decode(data, type=_Outline)
            rest = {"version": outline.version, "environment": outline.environment, "models": ()}
            table = routing.RoutingTable.model_validate(rest | {"servers": msgspec.json.decode(outline.servers)})
            for server in table.servers:
                if server.kind not in KINDS:
                    raise ValueError(f"server {server.name}: this proxy knows no kind {server.kind!r}")
        return cls(table, outline.models)

    async def models(self, before: Routes, stays: Container[Pool], pace: Pace) -> deque[tuple[bytes, _Entry]]:
        """Return each model with its text, which is of all its pools; as the route that it had before where nothing has
        changed.

        Raises TableError. `stays` are the pools that the new table has, too.
        """
        found: deque[tuple[bytes, _Entry]] = deque()
        places, parts = routing.Places(self.table.servers), dict[Any, list[tuple[int, bytes]]]()
        for number, raw in enumerate(self.texts):
            await pace.step()
            text = bytes(raw)
            parts.setdefault(_whose(text, number), []).append((number, text))
        for each in parts.values():
            await pace.step()
            text = b",".join(text for _, text in each)
            route = before.told_as(text)
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
        return found


def _whose(text: bytes, number: int) -> object:
    """Return which model something of a table is of; the number where that cannot be told."""
    with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        named = msgspec.json.decode(text, type=_Part)
        if isinstance(named.server, str) and isinstance(named.name, str):
            return named.server, named.name
    return number


@contextmanager
def _refusing(where: str = "") -> Iterator[None]:
    """Raise TableError for what is wrong with a table, or with a part of it that is `where`."""
    try:
        yield
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TableError(f"it is no routing table: {error}") from None
    except ValidationError as error:
        raise TableError(first_error(error, where)) from None
    except ValueError as error:
        raise TableError(str(error)) from None


async def access_table(data: bytes) -> routing.AccessTable:
    """Return the access table of a file; raises TableError."""
    try:
        return routing.AccessTable.model_validate_json(data)
    except ValidationError as error:
        raise TableError(first_error(error)) from None
