"""When the time of a call is up."""

from time import monotonic

IDLE_STREAM_SECONDS = 600.0
"""Seconds that a stream may stay open while its caller asks for nothing."""


class Deadline:
    """The caller's, or the proxy's own limit of `most` seconds; a stream has that anew with each message.

    `at` and `last` are monotonic seconds: when the time is up, and when it is at the latest, by the caller's deadline.
    """

    __slots__ = ("_most", "at", "is_own", "last", "started")

    def __init__(self, started: float, most: float, asked: float | None, stream: bool = False) -> None:
        self.started = started
        self.last = float("inf") if asked is None else started + asked
        self.at = min(started + (IDLE_STREAM_SECONDS if stream else most), self.last)
        self.is_own = asked is None or asked >= most
        """A time-out is the replica's failure: the caller's own deadline is not shorter than the proxy's limit."""
        self._most = most

    @property
    def left(self) -> float:
        """Seconds until the time is up."""
        return self.at - monotonic()

    @property
    def seconds(self) -> float:
        """Seconds between the call's start and the end of its time."""
        return self.at - self.started

    def message_sent(self) -> None:
        """Begin anew: a message of a stream went to the replica."""
        self.at = min(monotonic() + self._most, self.last)

    def message_received(self) -> None:
        """Begin anew: a message of a stream came from the replica."""
        self.at = min(monotonic() + max(self._most, IDLE_STREAM_SECONDS), self.last)
