"""Asks the few addresses that vouch for callers, never on the hot path; and Domino for a caller's identity."""

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

ANSWER_SECONDS = 5.0  # Seconds that an answer may take, from the name's look-up to its last byte.
MOST_ANSWER_BYTES = 512 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class NoAnswer(Exception):
    """Says why there is no usable answer, for the log; it never holds a header that was sent."""


class Redirected(NoAnswer):
    """The address redirects, which the proxy does not follow. It lasts until the address is changed."""


class NotLetIn(NoAnswer):
    """The address answers that it does not know the credential, or denies it."""


def web_proxy(url: URL) -> str | None:
    """Return the web proxy by which the environment has an address asked (HTTPS_PROXY, NO_PROXY), where there is one.

    aiohttp would find it too, and look for a file of credentials (~/.netrc) each time.
    """
    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)


class WebClient:
    """A client by the web proxy that the environment names (HTTPS_PROXY, NO_PROXY).

    It believes the authorities which the system knows, until it is told of others.
    """

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        self._context: ssl.SSLContext | bool = True
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._session: aiohttp.ClientSession | None = None

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON object that an address answers; raises NoAnswer. No redirect is followed."""
        try:
            return await self._get(URL(url), headers or {})
        except TimeoutError:
            raise NoAnswer(f"no whole answer within {self._timeout.total:g} s") from None
        except (msgspec.MsgspecError, RecursionError):
            raise NoAnswer("the answer is no JSON object") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}"[:300]) from None

    def trust(self, context: ssl.SSLContext) -> None:
        """Judge the servers of later connections by this; connections that are open are used no more."""
        self._context = context

    async def close(self) -> None:
        """Close the connections that are kept open."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, url: URL, headers: Mapping[str, str]) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar())
        headers = {"accept": "application/json", "accept-encoding": "identity", **headers}
        asked = self._session.get(url, headers=headers, allow_redirects=False, ssl=self._context, proxy=web_proxy(url))
        async with asked as response:
            if response.status in _REDIRECTS:
                raise Redirected(f"it redirects to {response.headers.get('location', '')}"[:300])
            body = bytearray()  # of an error, too: its connection is kept
            async for chunk in response.content.iter_chunked(65_536):
                body += chunk
                if len(body) > MOST_ANSWER_BYTES:
                    raise NoAnswer(f"the answer has more than {MOST_ANSWER_BYTES} bytes")
            if response.status != 200:
                raise (NotLetIn if response.status in (401, 403) else NoAnswer)(f"status {response.status}")
            return msgspec.json.decode(body, type=dict[str, Any])


HOLD_SECONDS = 60.0  # Seconds for which Domino's word holds; then it is asked again.
MOST_AT_ONCE = 16  # Questions to Domino at a time: a flood of made-up credentials must not become a flood there.
MOST_WAITING = 256
MOST_KNOWN = 16_384
_RETRY_SECONDS = 5.0
log = logging.getLogger(__name__)


@dataclass
class UnknownSender:
    """Stands for the connection over which a credential came, where there is none."""

    host: str = ""
    refusals: int = 0


Sender = AccountedConnection | UnknownSender
SENDER: ContextVar[Sender] = ContextVar("sender")  # Over which connection came what is checked in a task.


class Turns:
    """So many places for questions, and lines for them: one for each host, and one for credentials known before.

    Known ones come first, then the hosts by turns. In a host's line, connections with fewer refusals come first. Too
    many waiting questions cost the longest line its last one: a flood of made-up credentials delays its own sender.
    """

    def __init__(self) -> None:
        self._free = MOST_AT_ONCE
        self._waiting = 0
        self._lines: dict[str | None, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self._numbers = count()

    async def take(self, is_known: bool, sender: Sender) -> None:
        """Wait for a place; raises Problem (busy)."""
        if self._free:
            self._free -= 1
            return
        host, turn = None if is_known else sender.host, asyncio.get_running_loop().create_future()
        entry = sender.refusals, next(self._numbers), turn
        insort(self._lines.setdefault(host, []), entry)
        self._waiting += 1
        if self._waiting > MOST_WAITING:
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
        """Let the next one have the place."""
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
    """Asks the principal endpoint with what the caller sent."""

    def __init__(self, url: str, web: WebClient, wall: Callable[[], float] = time.time) -> None:
        self.failures = 0  # Questions without an answer since the last that had one.
        self._url = url
        self._web = web
        self._wall = wall
        self._turns = Turns()
        self._waiting: SharedTasks[_Proof, Principal | None] = SharedTasks()
        self._asked: SharedTasks[_Proof, Principal | None] = SharedTasks(outlives=True)
        """Questions that Domino has: it works on them, even if their callers have left, so they keep their places."""
        self._known: OrderedDict[bytes, None] = OrderedDict()  # Digests of credentials that Domino has known.

    async def identify(self, header: str, value: str, expires: float | None = None) -> Identity:
        """Return the identity that Domino has for a header's value, which `expires` then; raises Problem."""
        proof, sender = (header, value), SENDER.get(UnknownSender())
        principal = await self._waiting.join(proof, lambda: self._in_turn(proof, sender))
        now = self._wall()
        if principal is None or (expires is not None and expires <= now):
            raise refused("Domino does not know this credential, or it has ended. Get a new one.")
        return Identity(principal, min(now + HOLD_SECONDS, expires or float("inf")))

    async def close(self) -> None:
        """Give up what is under way."""
        await self._waiting.close()
        await self._asked.close()

    async def _in_turn(self, proof: _Proof, sender: Sender) -> Principal | None:
        if proof not in self._asked.under_way:
            await self._turns.take(_digest(proof) in self._known, sender)
        return await self._asked.join(proof, lambda: self._ask(proof, sender))

    async def _ask(self, proof: _Proof, sender: Sender) -> Principal | None:
        """Return who Domino says that the caller is, and give the place back; raises Problem."""
        try:
            principal = _principal(await self._web.get(self._url, dict([proof])))
        except NotLetIn:
            principal = None
        except NoAnswer as error:
            self.failures += 1
            (log.warning if self.failures == 1 else log.debug)("Domino does not say who callers are: %s", error)
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


def _principal(said: Mapping[str, Any]) -> Principal | None:
    """Return who Domino says that the caller is; None for one that it does not know, which it answers with 200 too."""
    if said.get("isAnonymous") is not False:
        return None
    name = said.get("canonicalName")
    if not is_name(name):
        raise NoAnswer("the answer has no canonicalName")
    return Principal(name, frozenset(), DOMINO)


def _digest(proof: _Proof) -> bytes:
    return hashlib.sha256("\0".join(proof).encode()).digest()[:16]
