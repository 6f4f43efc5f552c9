"""Requests within the time that a call has: what may be tried again is, with pauses."""

import time
from collections.abc import Mapping
from random import uniform
from typing import Final

from ..errors import TidegateError, UnreachableError
from .credentials import Credential
from .replies import Reply, error_of, is_failure, retry_after
from .transport import Body, NotSentError, TimeIsUpError, Transport

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_MOST_TRIES: Final = 3  # of what surely did nothing, or does no harm, and met no proxy that said when to come again
_MARGIN: Final = 0.25  # The proxy is told to end so many seconds before the caller does, so that its answer arrives.
_CREDENTIALS: Final = ("Authorization", "X-API-Key", "X-Domino-Api-Key")


class Deadline:
    """The time that one call has, all its tries together."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE

    @property
    def left(self) -> float:
        """Seconds that are left; less than 0 when the time is up."""
        return self._end - time.monotonic()

    def wait(self, retry_after: float | None = None) -> bool:
        """Wait before another try, and tell True; False, at once, where the time would be up before it.

        What the proxy said is never undercut; a little chance on top keeps callers that were sent away together from
        coming back together. Without it the pauses grow from a tenth of a second to two.
        """
        if retry_after is None:
            pause = self._pause * uniform(0.5, 1.0)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        else:
            pause = retry_after + uniform(0.0, min(0.5, retry_after / 4 + 0.05))
            if retry_after < self.left <= pause:
                pause = retry_after
        if pause >= self.left:
            return False
        time.sleep(pause)
        return True


class Requester:
    """Asks one proxy as one caller; made for threads."""

    def __init__(self, transport: Transport, credential: Credential, seconds: float, waits: bool = True) -> None:
        """`seconds`: how long a request may take, all its tries together, if it does not say.

        `waits`: whether it comes again when the proxy is busy and says when.
        """
        self.transport, self.seconds, self._waits = transport, seconds, waits
        self._credential = credential

    def ask(
        self,
        method: str,
        path: str,
        body: Body = (),
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
        also: int = 200,
    ) -> Reply:
        """Return the answer 200, or `also`, trying again what may be tried again; raises the error of any other one."""
        until = Deadline(self.seconds if deadline is None else deadline)
        where = self.transport.url + path
        tries, renewed = 0, False
        busy: TidegateError | None = None
        while True:
            tries += 1
            head = self._head(headers or {}, until)
            if until.left <= 0:
                raise TimeIsUpError("there was no answer in time", where=where, do="wait longer, or try again later")
            try:
                reply = self.transport.ask(method, path, body, head, time.monotonic() + until.left)
            except UnreachableError as error:
                if busy is not None and until.left <= 0:
                    raise busy from None
                may = isinstance(error, NotSentError) or method == "GET"
                if may and tries < _MOST_TRIES and until.wait():
                    continue
                raise
            if reply.status in (200, also):
                return reply
            if reply.status == 401 and not renewed and self._credential.renew():
                renewed = True
                continue
            refusal = error_of(reply, where, anonymous=head.keys().isdisjoint(_CREDENTIALS))
            seconds = retry_after(reply)
            if seconds is not None:
                tries, busy = 0, refusal
                if self._waits and until.wait(seconds):
                    continue
            elif method == "GET" and is_failure(reply) and tries < _MOST_TRIES and until.wait():
                continue
            raise refusal

    def _head(self, headers: Mapping[str, str], until: Deadline) -> dict[str, str]:
        head = {"User-Agent": "tidegate", **headers}
        if (who := self._credential.header(max(until.left, 0.0))) is not None:
            head[who[0]] = who[1]
        left = until.left  # after the credential, which may take a while
        head["request-timeout"] = f"{max(left - _MARGIN, left / 2, 0.001):.3f}"
        return head
