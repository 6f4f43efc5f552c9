"""One call on an HTTP/2 connection."""

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sending import Sender


class Stream:
    """One call on a connection, as its owner sees it: these methods are overridden, and `link` sends."""

    link: "Sender"
    number = 0
    send_window = 0
    receive_window = 0
    unsent_bytes = 0
    local_closed = False
    remote_closed = False
    _credit = 0
    _end_block: bytes | None = None
    _end_data = False
    _unsent: deque[memoryview] | None = None

    def take_head(self, head: Any, end: bool) -> None:
        """Take headers, after the first that opened it."""

    def take_data(self, data: bytes, end: bool) -> None:
        """Take data; give credit for it when it is gone."""

    def take_reset(self, code: int | None, processed: bool) -> None:
        """Learn that it has ended: by the peer, or with the connection (None). Not processed: it never began there."""

    def drained(self) -> None:
        """Learn that all that was to be sent has been sent."""
