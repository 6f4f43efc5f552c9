"""Asking the proxy within the time that there is: what may be tried again is, and nothing else."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from ..errors import TidegateError, UnreachableError
from .credentials import Credential
from .patience import Breaker, Patience
from .problems import Reply, error_of, is_failure, retry_after
from .transport import Body, NotSentError, TimeIsUpError, Transport

_MOST_TRIES: Final = 3
"""Of what surely did nothing, or does no harm, and met no proxy that said when to come again."""
_MARGIN: Final = 0.25
"""The proxy is told to end so many seconds earlier than the caller does, so that its answer still arrives."""
_CREDENTIALS: Final = ("Authorization", "X-API-Key", "X-Domino-Api-Key")
Once = Callable[[Mapping[str, str], float], Reply]
"""Sends a request with these headers, and returns the answer by then (of the monotonic clock)."""


class Asker:
    """Asks one proxy as one caller; made for threads."""

    def __init__(self, transport: Transport, credential: Credential, seconds: float, breaker: Breaker | None) -> None:
        """`seconds`: how long a request may take, all its tries together, if it does not say."""
        self.transport = transport
        self.seconds = seconds
        self._credential = credential
        self._breaker = breaker

    def ask(
        self,
        method: str,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        deadline: float | None,
        also: tuple[int, ...] = (),
    ) -> Reply:
        """Return the answer 200, or one of `also`; raises the error that any other one means."""

        def once(said: Mapping[str, str], end: float) -> Reply:
            return self.transport.ask(method, path, body, said, end)

        return self.tried(once, method, path, headers, deadline, also)

    def tried(
        self,
        once: Once,
        method: str,
        path: str,
        headers: Mapping[str, str],
        deadline: float | None,
        also: tuple[int, ...] = (),
        tell_deadline: bool = True,
    ) -> Reply:
        """Return the answer 200, or one of `also`, trying again what may be tried again."""
        patience = Patience(self.seconds if deadline is None else deadline)
        where = self.transport.url + path
        tries, renewed = 0, False
        busy: TidegateError | None = None
        while True:
            tries += 1
            said = self._head(headers, patience, tell_deadline)
            try:
                reply = self._counted(once, said, patience, where)
            except UnreachableError as error:
                if busy is not None and patience.left <= 0:
                    raise busy from None
                may = isinstance(error, NotSentError) or method == "GET"
                if may and tries < _MOST_TRIES and patience.wait():
                    continue
                raise
            if reply.status == 200 or reply.status in also:
                return reply
            if reply.status == 401 and not renewed and self._credential.renew():
                renewed = True
                continue
            refusal = error_of(reply, where, anonymous=said.keys().isdisjoint(_CREDENTIALS))
            seconds = retry_after(reply)
            if seconds is not None:
                tries, busy = 0, refusal
                if patience.wait(seconds):
                    continue
            elif method == "GET" and is_failure(reply) and tries < _MOST_TRIES and patience.wait():
                continue
            raise refusal

    def _head(self, headers: Mapping[str, str], patience: Patience, tell_deadline: bool) -> dict[str, str]:
        said = {"User-Agent": "tidegate", **headers}
        if (who := self._credential.header(max(patience.left, 0.0))) is not None:
            said[who[0]] = who[1]
        left = patience.left if tell_deadline else None  # after the credential, which may take a while
        if left is not None:
            said["request-timeout"] = f"{max(left - _MARGIN, left / 2, 0.001):.3f}"
        return said

    def _counted(self, once: Once, said: Mapping[str, str], patience: Patience, where: str) -> Reply:
        """Try once, and let the breaker know how it went."""
        breaker = self._breaker
        if patience.left <= 0:  # which says nothing of the proxy
            raise TimeIsUpError("there was no answer in time", where=where, do="wait longer, or try again later")
        end = time.monotonic() + patience.left
        if breaker is None:
            return once(said, end)
        trial = breaker.check(where)
        try:
            reply = once(said, end)
        except UnreachableError:
            breaker.failed(trial=trial)
            raise
        except BaseException:
            breaker.undecided(trial=trial)
            raise
        if is_failure(reply):
            breaker.failed(trial=trial)
        else:
            breaker.succeeded()
        return reply
