"""The head of a request for a model, as it was understood; and those that were understood before.

Clients say the same again and again: same path, same credential, same length. So a head that came before, byte for
byte, is not parsed anew. What it means was found by the parser, so the short way says just what the long one does.
"""

from dataclasses import dataclass

from ..paths import Target
from ..problems import Problem

LONGEST_KNOWN = 4096
"""Bytes of a head that is remembered."""
MOST_KNOWN = 4096
END = b"\r\n\r\n"


@dataclass(slots=True)
class Head:
    """What a request says before its body."""

    target: Target
    method: bytes
    passed: bytes
    """Header lines that go on to the replica."""
    credential: bytes
    length: int | None
    """Bytes of the body, where the request says it."""
    chunked: bool
    expects_continue: bool
    sticky: bytes | None
    request_id: bytes
    """The caller's own, or nothing."""
    seconds: float
    """How long the caller waits."""
    http_11: bool
    keep_alive: bool
    refusal: Problem | None
    """Why it is no request that can be answered."""


class KnownHeads:
    """Heads that came at least twice, so that heads which never come again fill no memory."""

    __slots__ = ("_heads", "_once")

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self._once: set[int] = set()

    def find(self, data: bytes) -> tuple[Head, bytes] | None:
        """Return the head and the body of a request that came in one piece and whose head is known."""
        end = data.find(END, 0, LONGEST_KNOWN)
        if end < 0:
            return None
        head = self._heads.get(data[:end])
        if head is None or len(data) - end - 4 != (head.length or 0):
            return None
        return head, data[end + 4 :]

    def learn(self, data: bytes, head: Head) -> None:
        """Remember the head of a request that came in one piece, if it has come before."""
        end = data.find(END, 0, LONGEST_KNOWN)
        if end < 0 or head.chunked or head.expects_continue or head.refusal is not None:
            return
        if len(data) - end - 4 != (head.length or 0):
            return
        text = data[:end]
        mark = hash(text)
        if mark in self._once:
            self._once.discard(mark)
            if len(self._heads) >= MOST_KNOWN:
                self._heads.clear()
            self._heads[text] = head
        else:
            if len(self._once) >= MOST_KNOWN:
                self._once.clear()
            self._once.add(mark)
