"""The arguments of a server of OpenAI's API: the definition's settings of its engine, as they are."""

from typing import Literal

from stacks.definition.openai import AnyEngine

from ..args import ServerArgs


class OpenaiServerArgs(ServerArgs):
    """One logical server of OpenAI's API: pools of which each serves one model."""

    kind: Literal["openai"]
    """Kind of the server."""
    openai: AnyEngine
    """Which engine it is, and the settings of its process."""
