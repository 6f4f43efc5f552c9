"""What a request needs of the connection that it came over."""

import asyncio
from typing import Protocol

from ..problems import Problem


class Body(Protocol):
    """The body of a request, as its connection sees it."""

    complete: bool
    is_held: bool
    """Whether no more of it is to be read for now."""


class Request(Protocol):
    """A request, whether a model or the proxy itself answers it; its connection calls it."""

    keep_alive: bool
    """Whether another request may follow over the connection."""
    response_complete: bool

    @property
    def body(self) -> Body:
        """Its body."""

    def start(self) -> None:
        """Begin to answer: it is this request's turn."""

    def take_body(self, data: bytes) -> None:
        """Take a part of its body."""

    def end_body(self) -> None:
        """Learn that it is whole."""

    def flush_request(self) -> None:
        """Send on what has come so far: no more is at hand."""

    def receiving_paused(self, paused: bool) -> None:
        """Learn whether the caller takes the answer slower than it comes."""

    def refuse(self, problem: Problem) -> None:
        """End it, in its turn, because its body is none."""

    def abandon(self) -> None:
        """End it: the caller has left."""


class Caller(Protocol):
    """The connection."""

    transport: asyncio.Transport

    def is_active(self, request: Request) -> bool:
        """Tell whether it is this request's turn to be answered."""

    def listen(self) -> None:
        """Hear the caller, unless a body is held."""

    def ended(self, request: Request) -> None:
        """Go on with the next request."""
