"""Asks the few addresses that vouch for callers. Never on the hot path."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

ANSWER_SECONDS = 5.0
"""Seconds that an answer may take, from the name's look-up to its last byte."""
MOST_ANSWER_BYTES = 512 * 1024
MOST_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class NoAnswer(Exception):
    """Says why there is no usable answer, for the log; it never holds a header that was sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a body of bounded length."""

    status: int
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the object that the body is; raises NoAnswer."""
        if self.status != 200:
            raise NoAnswer(f"status {self.status}")
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            raise NoAnswer("the answer is not JSON") from None
        if not isinstance(found, dict):
            raise NoAnswer("the answer is no JSON object")
        return found


class WebClient:
    """A client with the system's trust store."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._session: aiohttp.ClientSession | None = None

    async def get(self, url: str, headers: Mapping[str, str] | None = None, redirects: int = 0) -> Answer:
        """Return what an address answers; raises NoAnswer. A redirect leads to the same scheme, or nowhere."""
        try:
            target = URL(url)
            for _ in range(redirects + 1):
                answer, onward = await self._get(target, headers or {})
                if onward is None:
                    return answer
                if onward.scheme != target.scheme:
                    raise NoAnswer(f"it redirects to {onward.scheme}")
                target = onward
        except TimeoutError:
            raise NoAnswer(f"no whole answer within {self._timeout.total:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}"[:300]) from None
        raise NoAnswer("it redirects too often" if redirects else "it redirects")

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, url: URL, headers: Mapping[str, str]) -> tuple[Answer, URL | None]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar())
        headers = {"accept": "application/json", "accept-encoding": "identity", **headers}
        async with self._session.get(url, headers=headers, allow_redirects=False) as response:
            if response.status in _REDIRECTS:
                return Answer(response.status, b""), url.join(URL(response.headers.get("location", "")))
            body = bytearray()
            async for chunk in response.content.iter_chunked(65_536):
                body += chunk
                if len(body) > MOST_ANSWER_BYTES:
                    raise NoAnswer(f"the answer has more than {MOST_ANSWER_BYTES} bytes")
            return Answer(response.status, bytes(body)), None
