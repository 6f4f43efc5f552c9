"""The replica's side of a call."""

from typing import TYPE_CHECKING

from .heads import AnswerHead
from .stream import Stream

if TYPE_CHECKING:
    from .relay import Relay


class Far(Stream):
    """Hands on what a replica answers; what goes wrong in that ends the call, and no other of the connection."""

    def __init__(self, call: "Relay") -> None:
        self.call = call

    def take_head(self, head: AnswerHead, end: bool) -> None:
        """Hand headers on."""
        try:
            self.call.answer_head(head, end)
        except Exception:
            self.call.defect()

    def take_data(self, data: bytes, end: bool) -> None:
        """Hand a part of a message on."""
        try:
            self.call.answer_data(data, end)
        except Exception:
            self.call.defect()

    def take_reset(self, code: int | None, processed: bool) -> None:
        """Tell the caller."""
        try:
            self.call.answer_failed(code, processed)
        except Exception:
            self.call.defect()

    def drained(self) -> None:
        """Let the caller send more."""
        self.call.sent()
