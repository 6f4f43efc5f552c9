"""What is resolved of servers of the kind `toy`."""

from components.args import ServerArgs
from stacks.definition.base import Section

from .components import ToyServerArgs
from .definition import ToyServer

EXIT_SECONDS = 7


class ToyKind:
    """The toy, as `stacks.resolve.kinds.Kind` asks for it."""

    args: type[ServerArgs] = ToyServerArgs

    def settings(self, server: ToyServer) -> dict[str, Section]:
        """Return the toy's settings as they are."""
        return {"toy": server.toy}

    def exit_seconds(self, server: ToyServer) -> int:
        """Return how long a replica may take to stop."""
        assert server.kind == "toy"
        return EXIT_SECONDS
