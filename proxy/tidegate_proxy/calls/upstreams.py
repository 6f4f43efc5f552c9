"""The gRPC connections to replicas, and the headers that begin a call there."""

from pathlib import Path

from tidegate_contracts import proxy_process

from ..pools import Pool
from ..upstream.replica import Replica
from .heads import literal
from .line import Lines

_MOST_KEPT = 4096
"""Header blocks that are kept."""


class Upstreams:
    """Of one proxy. `connect_seconds` bounds each connection; `authorities` is the folder of CA files for TLS."""

    def __init__(self, connect_seconds: float, authorities: Path) -> None:
        self.connect_seconds = connect_seconds
        self._authorities = authorities
        self._connections: dict[Replica, Lines] = {}
        self._first_headers: dict[tuple[str, int, bool, bytes], bytes] = {}

    def connections(self, pool: Pool, replica: Replica) -> Lines:
        """Return the connections to a replica of a pool; they end with the replica."""
        found = self._connections.get(replica)
        if found is None:
            told, address = pool.told, replica.address
            authority = self._authorities / proxy_process.upstream_ca_file(pool.server) if told.grpc_tls else None
            found = Lines(replica.family, (address[0], told.grpc_port, *address[2:]), told.host, authority)
            self._connections[replica] = found
            replica.when_closed(lambda: self._connections.pop(replica).leave())
        return found

    def first_headers(self, pool: Pool, path: bytes) -> bytes:
        """Return the header block, as it is sent, that says which method is called."""
        told = pool.told
        key = told.host, told.grpc_port, told.grpc_tls, path
        block = self._first_headers.get(key)
        if block is None:
            authority = f"{told.host}:{told.grpc_port}".encode()
            # POST, and https or http, have numbers in every table (RFC 7541, appendix A).
            block = (b"\x83\x87" if told.grpc_tls else b"\x83\x86") + literal(b":path", path)
            block += literal(b":authority", authority)
            if len(self._first_headers) > _MOST_KEPT:
                self._first_headers.clear()
            self._first_headers[key] = block
        return block
