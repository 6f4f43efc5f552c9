"""What other components ask of servers that speak OpenAI's HTTP API."""

from typing import Any

import pulumi
from tidegate_contracts import openai

from stacks.definition.openai import VllmSettings

from ..args import PoolContext, ServerArgs
from ..values import of_kind, when
from .engines import by_engine
from .pool import OpenaiPool
from .server import OpenaiServerArgs


class OpenaiKind:
    """A server of OpenAI's API, as `components.kinds.ServerKind` asks for it."""

    args: type[ServerArgs] = OpenaiServerArgs
    http_port = openai.HTTP_PORT
    grpc_port = None
    metrics_port = openai.METRICS_PORT
    metrics_path = openai.METRICS_PATH
    model_ports = openai.PROCESS_PORTS

    def grpc_tls(self, server: OpenaiServerArgs) -> None:
        """Return None: it speaks no gRPC."""

    def live_path(self, server: OpenaiServerArgs) -> str | None:
        """Return the engine's path."""
        return by_engine(server.openai, lambda engine, it: engine.paths(it)[0])

    def named_if_shared(self, server: OpenaiServerArgs) -> str | None:
        """Return the server's name where its models sleep by turns."""
        return of_kind(server.openai, VllmSettings, lambda it: when(it.sleep, lambda _: server.name))

    def declare_pool(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions) -> None:
        """Declare the objects of a pool."""
        OpenaiPool(name, pool, opts)

    def alerts(self, selector: str) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return none: each engine has series of its own, and what calls meet the proxies measure."""
        return []
