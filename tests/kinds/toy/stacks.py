"""Servers of the kind `toy`, as a definition has them, and what is resolved of them."""

from typing import Literal

from components.args import ServerArgs
from stacks.definition.base import Section, Text
from stacks.definition.servers import Server

EXIT_SECONDS = 7


class ToySettings(Section):
    """How the toy runs."""

    greeting: Text = "hello"
    """What it answers."""


class ToyServer(Server):
    """One toy server: models that greet."""

    kind: Literal["toy"]  # Kind of the server.
    toy: ToySettings = ToySettings()  # Settings of the toy.


class ToyServerArgs(ServerArgs):
    """One toy server: models that greet."""

    kind: Literal["toy"]  # Kind of the server.
    toy: ToySettings = ToySettings()  # Settings of the toy.


class ToyKind:
    """See `stacks.resolve.kinds.ServerKind`."""

    args: type[ServerArgs] = ToyServerArgs

    def settings(self, server: ToyServer) -> dict[str, Section]:
        return {"toy": server.toy}

    def exit_seconds(self, server: ToyServer) -> int:
        assert server.kind == "toy"
        return EXIT_SECONDS
