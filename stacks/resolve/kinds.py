"""The seam for kinds of servers: what each kind resolves of its own."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from components.args import ServerArgs

from ..definition.base import Section
from .openai import OpenaiKind
from .triton import TritonKind


class ServerKind(Protocol):
    """What resolving has to know of one kind of server; `server` is of the definition's class for that kind."""

    args: type[ServerArgs]  # The class of its servers' arguments.

    def settings(self, server: Any) -> Mapping[str, Section]:
        """Return the arguments that this kind has beside those of all kinds, by name."""

    def exit_seconds(self, server: Any) -> int:
        """Return how many seconds requests in flight may take to end when a replica stops."""


KINDS: Final[dict[str, ServerKind]] = {"triton": TritonKind(), "openai": OpenaiKind()}
"""Kind, as the definition says it → what is known of it."""
