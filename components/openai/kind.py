"""What other components ask of servers that speak OpenAI's HTTP API."""

from collections.abc import Callable

import pulumi
from tidegate_contracts import openai

from stacks.definition.environment import Mesh
from stacks.definition.openai import DynamoSettings
from stacks.definition.pods import Pods

from ..args import PoolArgs, PoolContext, ServerArgs
from ..place import Place
from ..values import of_kind, when
from .engines import by_engine
from .frontends import OpenaiFrontends, service_of
from .pool import OpenaiPool
from .server import OpenaiServerArgs


class OpenaiKind:
    """A server of OpenAI's API, as `components.kinds.ServerKind` asks for it."""

    args: type[ServerArgs] = OpenaiServerArgs
    http_port = openai.HTTP_PORT
    grpc_port = None
    metrics_port = openai.METRICS_PORT
    metrics_path = openai.METRICS_PATH

    def grpc_tls(self, server: OpenaiServerArgs) -> None:
        """Return None: it speaks no gRPC."""

    def live_path(self, server: OpenaiServerArgs) -> str | None:
        """Return the engine's path."""
        return by_engine(server.openai, lambda engine, it: engine.paths(it)[0])

    def service(self, server: OpenaiServerArgs, pool: PoolArgs, make: Callable[[str], str]) -> str:
        """Return what `make` makes of the name of the Service of shared frontends, or of the pool's own."""
        return service_of(server, pool, make)

    def declare_shared(
        self,
        name: str,
        server: OpenaiServerArgs,
        place: Place,
        every_pod: Pods,
        mesh: Mesh | None,
        opts: pulumi.ResourceOptions,
    ) -> OpenaiFrontends | None:
        """Declare the frontends that its pools share, where they do."""
        return of_kind(
            server.openai,
            DynamoSettings,
            lambda it: when(
                it.frontends, lambda found: OpenaiFrontends(name, server, it, found, place, every_pod, mesh, opts)
            ),
        )

    def declare_pool(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions) -> None:
        """Declare the objects of a pool."""
        OpenaiPool(name, pool, opts)
