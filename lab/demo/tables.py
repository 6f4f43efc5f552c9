"""Writes the proxy's tables for a demo's definition to the files that the proxy reads."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tidegate_contracts import proxy_process, routing

from lab.local_plane.proxy import write_keys, write_tables

CALLER = "visitor"


def write_proxy(
    folder: Path,
    objects: Sequence[dict[str, Any]],
    key: str,
    moved: Callable[[routing.Pool], routing.Pool] = lambda pool: pool,
) -> routing.RoutingTable:
    """Write the tables of rendered objects, and the caller's key, to a proxy's directory. Return the routing table.
    `moved` returns a pool with its ports on this machine."""
    (data,) = (
        each["data"] for each in objects if each["kind"] == "ConfigMap" and proxy_process.ROUTING_FILE in each["data"]
    )
    table = routing.RoutingTable.model_validate_json(data[proxy_process.ROUTING_FILE])
    servers = [server.model_copy(update={"pools": tuple(map(moved, server.pools))}) for server in table.servers]
    table = table.model_copy(update={"servers": tuple(servers)})
    write_tables(folder, table, routing.AccessTable.model_validate_json(data[proxy_process.ACCESS_FILE]))
    write_keys(folder, {CALLER: key})
    return table
