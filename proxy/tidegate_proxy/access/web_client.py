"""A client for the few services that authenticate callers, never on the hot path. And Domino's principal endpoint."""

import asyncio
import hashlib
import logging
import ssl
import time
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from tidegate_contracts.routing import DOMINO
from yarl import URL

from ..guests import AccountedConnection
from ..shared_tasks import SharedTasks
from .identity import Identity, Principal, is_name, refused, unanswered

ANSWER_SECONDS = 5.0  # Seconds for a whole response, from the DNS look-up to the last byte.
MOST_ANSWER_BYTES = 512 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class NoAnswer(Exception):
    """No usable response. The text is for the log and never contains a header that was sent."""


class Redirected(NoAnswer):
    """The address redirects, which the proxy does not follow. The error lasts until the address is corrected."""


class NotLetIn(NoAnswer):
    """The address refuses the credential (401, 403)."""


def web_proxy(url: URL) -> str | None:
    """Return the web proxy that the environment sets for an address (HTTPS_PROXY, NO_PROXY), if any. The look-up of
    aiohttp would read a file of credentials (~/.netrc) each time."""
    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)


class WebClient:
    """A client that uses the web proxy of the environment (HTTPS_PROXY, NO_PROXY). It trusts the system's certificate
    authorities until `trust` replaces them."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        self._context: ssl.SSLContext | bool = True
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._session: aiohttp.ClientSession | None = None

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON object at an address. Raises NoAnswer. Redirects are not followed."""
        try:
            return await self._get(URL(url), headers or {})
        except TimeoutError:
            raise NoAnswer(f"no complete response within {self._timeout.total:g} s") from None
        except (msgspec.MsgspecError, RecursionError):
            raise NoAnswer("the response is not a JSON object") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}"[:300]) from None

    def trust(self, context: ssl.SSLContext) -> None:
        """Verify the servers of new connections with this. Open connections are not used again."""
        self._context = context

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, url: URL, headers: Mapping[str, str]) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar())
        headers = {"accept": "application/json", "accept-encoding": "identity", **headers}
        got = self._session.get(url, headers=headers, allow_redirects=False, ssl=self._context, proxy=web_proxy(url))
        async with got as response:
            if response.status in _REDIRECTS:
                raise Redirected(f"it redirects to {response.headers.get('location', '')}"[:300])
            body = bytearray()  # of an error too, so that its connection can be reused
            async for chunk in response.content.iter_chunked(65_536):
                body += chunk
                if len(body) > MOST_ANSWER_BYTES:
                    raise NoAnswer(f"the response has more than {MOST_ANSWER_BYTES} bytes")
            if response.status != 200:
                raise (NotLetIn if response.status in (401, 403) else NoAnswer)(f"status {response.status}")
            return msgspec.json.decode(body, type=dict[str, Any])


HOLD_SECONDS = 60.0  # Seconds for which Domino's response is cached.
MOST_AT_ONCE = 16  # Concurrent requests to Domino: a flood of invented credentials must not flood Domino.
MOST_WAITING = 256
MOST_KNOWN = 16_384
_RETRY_SECONDS = 5.0
log = logging.getLogger(__name__)


@dataclass
class UnknownSender:
    """Stands in for the connection of a credential, if there is none."""

    host: str = ""
    refusals: int = 0


Sender = AccountedConnection | UnknownSender
SENDER: ContextVar[Sender] = ContextVar("sender")  # The connection of the credential that a task checks.


class Turns:
    """A limited number of places for requests to Domino, with one queue for each host and one for known credentials.

    Known credentials go first, then the hosts in turn. In a host's queue, connections with fewer refusals go first. If
    too many requests wait, the longest queue loses its last one: a flood of invented credentials delays its own sender.
    """

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._free = MOST_AT_ONCE
        self._most_waiting = most_waiting
        self._waiting = 0
        self._lines: dict[str | None, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self._numbers = count()

    async def take(self, is_known: bool, sender: Sender) -> None:
        """Wait for a place. Raises Problem (busy)."""
        if self._free:
            self._free -= 1
            return
        host, turn = None if is_known else sender.host, asyncio.get_running_loop().create_future()
        entry = sender.refusals, next(self._numbers), turn
        insort(self._lines.setdefault(host, []), entry)
        self._waiting += 1
        if self._waiting > self._most_waiting:
            longest = max(self._lines, key=lambda each: len(self._lines[each]))
            last = self._leave(longest, self._lines[longest][-1])
            if not last.done():
                last.set_exception(unanswered("Domino", _RETRY_SECONDS))
        try:
            await turn
        except asyncio.CancelledError:
            if entry in self._lines.get(host, ()):
                self._leave(host, entry)
            elif not turn.cancelled() and turn.exception() is None:
                self.give_back()
            raise

    def give_back(self) -> None:
        """Pass the place to the next in line."""
        while self._waiting:
            host = None if None in self._lines else next(iter(self._lines))
            turn = self._leave(host, self._lines[host][0])
            if host in self._lines:
                self._lines[host] = self._lines.pop(host)  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _leave(self, host: str | None, entry: tuple[int, int, asyncio.Future[None]]) -> asyncio.Future[None]:
        line = self._lines[host]
        line.remove(entry)
        self._waiting -= 1
        if not line:
            del self._lines[host]
        return entry[-1]


_Proof = tuple[str, str]  # A header, and the value that the caller sent in it.


class Domino:
    """A client of Domino's principal endpoint."""

    def __init__(self, url: str, web: WebClient, wall: Callable[[], float] = time.time) -> None:
        self.failures = 0  # Requests without a response since the last that had one.
        self._url = url
        self._web = web
        self._wall = wall
        self._turns = Turns()
        self._waiting: SharedTasks[_Proof, Principal | None] = SharedTasks()
        self._sent: SharedTasks[_Proof, Principal | None] = SharedTasks(outlives=True)
        """Requests that Domino works on: it goes on if their callers leave, so they keep their places."""
        self._known: OrderedDict[bytes, None] = OrderedDict()  # Digests of credentials that Domino has accepted.

    async def identify(self, header: str, value: str, expires: float | None = None) -> Identity:
        """Return Domino's identity for a header's value, which expires at `expires`. Raises Problem."""
        proof, sender = (header, value), SENDER.get(UnknownSender())
        principal = await self._waiting.join(proof, lambda: self._in_turn(proof, sender))
        now = self._wall()
        if principal is None or (expires is not None and expires <= now):
            raise refused("Domino does not accept this credential, or it has expired. Get a new one.")
        return Identity(principal, min(now + HOLD_SECONDS, expires or float("inf")))

    async def close(self) -> None:
        await self._waiting.close()
        await self._sent.close()

    async def _in_turn(self, proof: _Proof, sender: Sender) -> Principal | None:
        if proof not in self._sent.under_way:
            await self._turns.take(_digest(proof) in self._known, sender)
        return await self._sent.join(proof, lambda: self._query(proof, sender))

    async def _query(self, proof: _Proof, sender: Sender) -> Principal | None:
        """Return Domino's principal for a credential, and give the place back. Raises Problem."""
        try:
            principal = _principal(await self._web.get(self._url, dict([proof])))
        except NotLetIn:
            principal = None
        except NoAnswer as error:
            self.failures += 1
            (log.warning if self.failures == 1 else log.debug)("Domino cannot identify callers: %s", error)
            raise unanswered("Domino", _RETRY_SECONDS) from None
        finally:
            self._turns.give_back()
        self.failures = 0
        self._known.pop(digest := _digest(proof), None)
        if principal is None:
            sender.refusals += 1
        else:
            self._known[digest] = None
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return principal


def _principal(response: Mapping[str, Any]) -> Principal | None:
    """Return Domino's principal. None for an unknown one, for which Domino also returns 200."""
    if response.get("isAnonymous") is not False:
        return None
    name = response.get("canonicalName")
    if not is_name(name):
        raise NoAnswer("the response has no canonicalName")
    return Principal(name, frozenset(), DOMINO)


def _digest(proof: _Proof) -> bytes:
    return hashlib.sha256("\0".join(proof).encode()).digest()[:16]
