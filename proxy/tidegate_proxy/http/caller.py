"""A request as its connection sees it, and what it needs of the connection that it came over."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from ..access.web_client import Sender
from ..memory import Booking, Holder
from ..problems import Problem


@dataclass(slots=True, eq=False)
class Body:
    """The body of a request, as its connection sees it."""

    complete: bool = False
    is_held: bool = False  # Whether no more of it is read for now.

    @property
    def left(self) -> int:
        """Bytes of it that are still to come, as far as that is known."""
        return 0

    def release(self) -> None:
        """Hold nothing of it any more."""


class Request:
    """What a request does unless it says otherwise: its body is dropped, and its answer comes in one piece."""

    __slots__ = ()
    body: Body
    keep_alive: bool  # Whether another request may follow over the connection.
    response_complete: bool

    def take_body(self, data: bytes) -> None:
        """Take a part of the request's body."""

    def end_body(self) -> None:
        """Note that the body is whole."""
        self.body.complete = True

    def flush_request(self) -> None:
        """Send on what has come so far: no more is at hand."""

    def receiving_paused(self, paused: bool) -> None:
        """Learn whether the caller takes the answer slower than it comes."""

    def refuse(self, problem: Problem) -> None:
        """End it, in its turn, because its body is none."""


class Caller(Sender, Protocol):
    """What a request needs of its client connection."""

    transport: asyncio.Transport
    is_unknown: bool

    def known_as(self, holder: Holder) -> None:
        """Learn whose connection it is; raises Problem."""

    def write_out(self, data: bytes) -> None:
        """Write."""

    def books(self) -> Booking:
        """Return what counts for a call over it of which it is not known who makes it."""

    def is_active(self, request: Request) -> bool:
        """Tell whether it is this request's turn to be answered."""

    def listen(self) -> None:
        """Hear the caller, unless a body is held."""

    def ended(self, request: Request) -> None:
        """Go on with the next request."""
