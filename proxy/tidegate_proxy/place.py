"""Where a proxy finds its files, and where it listens."""

from dataclasses import dataclass
from pathlib import Path

from tidegate_contracts import proxy_process


@dataclass(frozen=True)
class Place:
    """The contract's by default; a port of 0 is any free one, and no host is every address."""

    routing: Path = Path(proxy_process.ROUTING_ROOT)
    tls: Path = Path(proxy_process.TLS_ROOT)
    api_keys: Path = Path(proxy_process.API_KEYS_ROOT)
    upstream_ca: Path = Path(proxy_process.UPSTREAM_CA_ROOT)
    host: str = ""
    http_port: int = proxy_process.HTTP_PORT
    grpc_port: int = proxy_process.GRPC_PORT
    admin_port: int = proxy_process.ADMIN_PORT
