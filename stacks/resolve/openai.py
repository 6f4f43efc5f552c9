"""What is resolved of servers of the kind `openai`: nothing, as components take settings as they are."""

from components.args import ServerArgs
from components.openai.server import OpenaiServerArgs

from ..definition.base import Section
from ..definition.openai import OpenaiServer


class OpenaiKind:
    """A server of OpenAI's API, as `stacks.resolve.kinds.ServerKind` asks for it."""

    args: type[ServerArgs] = OpenaiServerArgs

    def settings(self, server: OpenaiServer) -> dict[str, Section]:
        """Return the settings of the engine."""
        return {"openai": server.openai}

    def exit_seconds(self, server: OpenaiServer) -> int:
        """Return how long streams in flight may take to end when a replica stops."""
        return server.openai.exit_timeout_seconds
