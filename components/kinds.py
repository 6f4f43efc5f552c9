"""The seam for kinds of servers: what the components of an environment ask of the kind of each server.

A second kind is a folder beside `triton/` with a class that fulfils `ServerKind`, and a line in `KINDS`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import pulumi

from stacks.definition.environment import Mesh
from stacks.definition.pods import Pods
from stacks.definition.servers import ServerTls

from .args import PoolArgs, PoolContext, ServerArgs
from .openai.kind import OpenaiKind
from .place import Place
from .triton.kind import TritonKind
from .values import of_kinds

Made = TypeVar("Made")


class ServerKind(Protocol):
    """What has to be known of one kind of server; its methods may be handed placeholders, as all of `components`."""

    args: type[ServerArgs]  # The class of its servers' arguments.
    http_port: int  # Port of its API over HTTP.
    metrics_port: int  # Port that Prometheus reads; containers and PodMonitors call it `metrics`.
    metrics_path: str  # Path that Prometheus reads there.

    @property
    def grpc_port(self) -> int | None:
        """Port of KServe v2 over gRPC, where it speaks that."""

    def grpc_tls(self, server: Any) -> ServerTls | None:
        """Return the secret with the server's gRPC certificate; None where gRPC is plain."""

    def live_path(self, server: Any) -> str | None:
        """Return where a replica answers 200 for as long as it is not hung; None where proxies know."""

    def service(self, server: Any, pool: PoolArgs, make: Callable[[str], str]) -> str:
        """Return what `make` makes of the name of the headless Service whose addresses answer the calls of a pool."""

    def declare_shared(
        self, name: str, server: Any, place: Place, every_pod: Pods, mesh: Mesh | None, opts: pulumi.ResourceOptions
    ) -> object:
        """Declare what the pools of a server share, under a component of that name."""

    def declare_pool(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions) -> None:
        """Declare the objects of a pool, under a component of that name."""


KINDS: Final[dict[str, ServerKind]] = {"triton": TritonKind(), "openai": OpenaiKind()}
"""Kind, as servers say it → what is known of it."""


def by_kind(server: ServerArgs, make: Callable[[ServerKind, Any], Made]) -> Made | None:
    """Return what `make` makes of the kind of a server and the server itself."""
    return of_kinds(server, {kind.args: partial(make, kind) for kind in KINDS.values()})
