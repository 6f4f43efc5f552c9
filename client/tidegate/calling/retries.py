"""Requests within the time that a call has: what may be tried again is, with pauses; a failing proxy is left alone."""

import threading
import time
from collections.abc import Callable, Mapping
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
Once = Callable[[Mapping[str, str], float], Reply]
"""Sends a request with these headers, and returns the answer by then (of the monotonic clock)."""


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


class CircuitBreaker:
    """Stops asking a proxy that fails again and again: calls fail at once, and now and then one of them is tried.

    What opens it is no answer, or an answer that the proxy or its server failed; one that is merely busy does not.
    """

    def __init__(self, failures: int = 5, seconds: float = 1.0, longest: float = 30.0) -> None:
        """So many failures, one after the other, open it for so long; twice as long after each trial that fails."""
        self._failures, self._first, self._longest = failures, seconds, longest
        self._lock = threading.Lock()
        self._failed, self._closed_for = 0, seconds
        self._until: float | None = None
        self._trial = False

    def check(self, where: str) -> bool:
        """Raise UnreachableError while it is open; else tell whether the call is the trial of a half-open one."""
        with self._lock:
            if self._until is None:
                return False
            left = self._until - time.monotonic()
            if left <= 0 and not self._trial:
                self._trial = True
                return True
        what = "the proxy is not asked now"
        do = f"try again in {max(left, 0.1):.1f} s, when one call may try it"
        raise UnreachableError(what, where=where, why=f"{self._failed} calls failed, one after the other", do=do)

    def succeeded(self) -> None:
        """Close the breaker: there was an answer."""
        with self._lock:
            self._failed, self._until, self._trial, self._closed_for = 0, None, False, self._first

    def failed(self, *, trial: bool = False) -> None:
        """Count a failure: of the trial, or of another call, which may have begun long before it."""
        with self._lock:
            self._failed += 1
            if trial:
                self._closed_for = min(self._closed_for * 2, self._longest)
            if trial or (self._until is None and self._failed >= self._failures):
                self._until = time.monotonic() + self._closed_for
                self._trial = False

    def undecided(self, *, trial: bool = False) -> None:
        """Give a trial back that told nothing of the proxy."""
        with self._lock:
            self._trial = self._trial and not trial


class Requester:
    """Asks one proxy as one caller; made for threads."""

    def __init__(
        self,
        transport: Transport,
        credential: Credential,
        seconds: float,
        breaker: CircuitBreaker | None,
        waits: bool = True,
    ) -> None:
        """`seconds`: how long a request may take, all its tries together, if it does not say.

        `waits`: whether it comes again when the proxy is busy and says when.
        """
        self.transport, self.seconds, self._waits = transport, seconds, waits
        self._credential, self._breaker = credential, breaker

    def ask(
        self,
        method: str,
        path: str,
        body: Body = (),
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
        also: int = 200,
    ) -> Reply:
        """Return the answer 200, or `also`; raises the error that any other one means."""

        def once(said: Mapping[str, str], end: float) -> Reply:
            return self.transport.ask(method, path, body, said, end)

        return self.tried(once, method, path, headers or {}, deadline, also)

    def tried(
        self,
        once: Once,
        method: str,
        path: str,
        headers: Mapping[str, str],
        deadline: float | None,
        also: int = 200,
        tell_deadline: bool = True,
    ) -> Reply:
        """Return the answer 200, or `also`, trying again what may be tried again."""
        until = Deadline(self.seconds if deadline is None else deadline)
        where = self.transport.url + path
        tries, renewed = 0, False
        busy: TidegateError | None = None
        while True:
            tries += 1
            said = self._head(headers, until, tell_deadline)
            try:
                reply = self._counted(once, said, until, where)
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
            refusal = error_of(reply, where, anonymous=said.keys().isdisjoint(_CREDENTIALS))
            seconds = retry_after(reply)
            if seconds is not None:
                tries, busy = 0, refusal
                if self._waits and until.wait(seconds):
                    continue
            elif method == "GET" and is_failure(reply) and tries < _MOST_TRIES and until.wait():
                continue
            raise refusal

    def _head(self, headers: Mapping[str, str], until: Deadline, tell_deadline: bool) -> dict[str, str]:
        said = {"User-Agent": "tidegate", **headers}
        if (who := self._credential.header(max(until.left, 0.0))) is not None:
            said[who[0]] = who[1]
        if tell_deadline:
            left = until.left  # after the credential, which may take a while
            said["request-timeout"] = f"{max(left - _MARGIN, left / 2, 0.001):.3f}"
        return said

    def _counted(self, once: Once, said: Mapping[str, str], until: Deadline, where: str) -> Reply:
        """Try once, and let the breaker know how it went."""
        if until.left <= 0:  # which says nothing of the proxy
            raise TimeIsUpError("there was no answer in time", where=where, do="wait longer, or try again later")
        end = time.monotonic() + until.left
        if self._breaker is None:
            return once(said, end)
        trial = self._breaker.check(where)
        try:
            reply = once(said, end)
        except UnreachableError:
            self._breaker.failed(trial=trial)
            raise
        except BaseException:
            self._breaker.undecided(trial=trial)
            raise
        if is_failure(reply):
            self._breaker.failed(trial=trial)
        else:
            self._breaker.succeeded()
        return reply
