"""Domino's own word on who a caller is."""

import asyncio
import logging
import time
from collections.abc import Callable

from tidegate_contracts.routing import DOMINO

from .identity import LONGEST_NAME, Identity, Principal, refused, unanswered
from .web_client import Answer, NoAnswer, WebClient

HOLD_SECONDS = 60.0
"""Seconds for which Domino's word holds; then it is asked again."""
MOST_AT_ONCE = 16
"""Questions to Domino at a time: a flood of made-up credentials must not become a flood there."""
MOST_WAITING = 256
_RETRY_SECONDS = 5.0
log = logging.getLogger(__name__)


class Domino:
    """Asks the principal endpoint with what the caller sent."""

    def __init__(self, url: str, web: WebClient, wall: Callable[[], float] = time.time) -> None:
        self.failures = 0
        """Questions without an answer since the last that had one."""
        self._url = url
        self._web = web
        self._wall = wall
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._waiting = 0

    async def identify(self, header: str, value: str, expires: float | None = None) -> Identity:
        """Return whom Domino knows by a header's value; raises Problem. `expires` is what the value says of its end."""
        if self._waiting >= MOST_WAITING:
            raise unanswered("Domino", _RETRY_SECONDS)
        self._waiting += 1
        try:
            async with self._turns:
                answer = await self._web.get(self._url, {header: value})
            principal = self._principal(answer)
        except NoAnswer as error:
            self.failures += 1
            (log.warning if self.failures == 1 else log.debug)("Domino does not say who callers are: %s", error)
            raise unanswered("Domino", _RETRY_SECONDS) from None
        finally:
            self._waiting -= 1
        self.failures = 0
        now = self._wall()
        if principal is None or (expires is not None and expires <= now):
            raise refused("Domino does not know this credential, or it has ended. Get a new one.")
        return Identity(principal, min(now + HOLD_SECONDS, expires or float("inf")))

    def _principal(self, answer: Answer) -> Principal | None:
        if answer.status in (401, 403):
            return None
        said = answer.json()
        if said.get("isAnonymous") is not False:  # Domino answers 200 to those whom it does not know
            return None
        name = said.get("canonicalName")
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise NoAnswer("the answer has no canonicalName")
        return Principal(name, frozenset(), DOMINO)
