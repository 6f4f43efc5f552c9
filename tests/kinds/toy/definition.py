"""Servers of the kind `toy`, as a definition has them."""

from typing import Literal

from stacks.definition.base import Section, Text
from stacks.definition.servers import Server


class ToySettings(Section):
    """How the toy runs."""

    greeting: Text = "hello"
    """What it answers."""


class ToyServer(Server):
    """One toy server: models that greet."""

    kind: Literal["toy"]
    """Kind of the server."""
    toy: ToySettings = ToySettings()
    """Settings of the toy."""
