"""What other components ask of Triton."""

from collections.abc import Callable
from typing import Any

import pulumi
from tidegate_contracts import triton

from stacks.definition.servers import ServerTls

from ..args import PoolArgs, PoolContext, ServerArgs
from ..place import pool_headless_name
from .pool import TritonPool
from .server import TritonServerArgs


class TritonKind:
    """Triton, as `components.kinds.ServerKind` asks for it."""

    args: type[ServerArgs] = TritonServerArgs
    http_port = triton.HTTP_PORT
    grpc_port = triton.GRPC_PORT
    metrics_port = triton.METRICS_PORT
    metrics_path = triton.METRICS_PATH

    def grpc_tls(self, server: TritonServerArgs) -> ServerTls | None:
        """Return the secret with the server's gRPC certificate; None where gRPC is plain."""
        return server.triton.grpc_tls

    def live_path(self, server: TritonServerArgs) -> None:
        """Return None: it is the same for all."""

    def service(self, server: TritonServerArgs, pool: PoolArgs, make: Callable[[str], str]) -> str:
        """Return what `make` makes of the name of the pool's own Service."""
        return make(pool_headless_name(server.name, pool.name))

    def declare_shared(self, *_: Any) -> None:
        """Declare nothing: pools of Triton share nothing."""

    def declare_pool(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions) -> None:
        """Declare the objects of a pool."""
        TritonPool(name, pool, opts)
