"""The proxy as the process that runs in its container: its tables, settings and ports."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tidegate_contracts import proxy_process, routing
from tidegate_contracts.proxy_settings import variable
from tidegate_proxy.access.api_keys import hash_line

from . import named_proxy
from .credentials import write_lease_token
from .process import HOST, Server, python_variables, replace_file, running

ENVIRONMENT = "test"
SETTINGS = {
    "environment": ENVIRONMENT,
    "replicas_host": "localhost",
    "body_limit_bytes": str(64 << 20),
    "concurrency": "1024",
    "connect_timeout_seconds": "2",
    "request_timeout_seconds": "30",
    "drain_seconds": "5",
    "log_level": "info",
    "tls": "false",
    "api_keys": "false",
}


@dataclass(frozen=True)
class Proxy(Server):
    """A running proxy."""

    admin_port: int
    root: Path  # The directory with its tables.

    @property
    def ports(self) -> tuple[int, int, int]:
        return self.http_port, self.grpc_port, self.admin_port

    @property
    def admin(self) -> str:
        return f"{HOST}:{self.admin_port}"


def write_tables(root: Path, *tables: routing.RoutingTable | routing.AccessTable) -> None:
    """Write tables where the proxy reads them. Each is replaced atomically, as a ConfigMap is."""
    folder = root / "routing"
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        is_routing = isinstance(table, routing.RoutingTable)
        name = proxy_process.ROUTING_FILE if is_routing else proxy_process.ACCESS_FILE
        text = table.model_dump_json(by_alias=True)
        # First, because the proxy reads it after the table has changed.
        checksum = sha256(text.encode()).hexdigest()
        replace_file(folder / f"{name}{proxy_process.CHECKSUM}", checksum)
        replace_file(folder / name, text)


def write_keys(root: Path, keys: Mapping[str, str]) -> None:
    """Write API keys, by the caller's name."""
    (root / "api-keys").mkdir(exist_ok=True)
    for caller, key in keys.items():
        (root / "api-keys" / caller).write_text(f"{hash_line(key)}\n", "utf-8")


@contextmanager
def proxy(
    root: Path,
    core: int | None = None,
    settings: Mapping[str, str] | None = None,
    module: str = proxy_process.MODULE,
    names: Path | None = None,
) -> Iterator[Proxy]:
    """Run a proxy with the tables in `root` at free ports until the block ends.
    `module` replaces the container's program, and `names` DNS: a file of addresses by pool (`named_proxy`)."""
    variables = {variable(name): value for name, value in (SETTINGS | dict(settings or {})).items()}
    if names is not None:
        module, variables = named_proxy.__name__, variables | {named_proxy.VARIABLE: str(names)}
    environment = os.environ | variables | python_variables("proxy", "contracts", "service")
    command: list[str | Path] = [sys.executable, "-m", module, "--root", root, "--host", HOST]
    command += ["--http-port", "0", "--grpc-port", "0", "--admin-port", "0"]
    write_lease_token(root)
    log = root / "proxy.log"
    with running("the proxy", command, log, environment, core) as process:
        found = process.announced_ports()
        yield Proxy(process, found["http"], found["grpc"], found["admin"], root)
