"""The signing keys of an identity provider."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import jwt
from tidegate_service.tokens import TokenError, read_keys

from ..problems import Problem, ProblemType
from ..shared_tasks import SharedTasks
from .identity import refused, unanswered
from .web_client import NoAnswer, Redirected, WebClient

REFRESH_SECONDS = 300.0  # Seconds after which keys are fetched again, in the background.
TRUST_SECONDS = 4 * 3600.0  # Seconds for which keys are trusted while their provider does not respond.
_LONGEST_PAUSE_SECONDS = 60.0
_DISCOVERY = "/.well-known/openid-configuration"
log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class IssuerKeys:
    """The keys of one issuer, fetched from `jwks_url` or, without it, from the address in its OpenID discovery."""

    issuer: str
    jwks_url: str | None
    _web: WebClient
    _changed: Callable[[str, bool], None]
    _clock: Callable[[], float]
    _wall: Callable[[], float]
    _pause_seconds: float
    failures: int = 0  # Failed fetches since the last successful one.
    _is_redirected: bool = False  # Whether the last failure was a redirect.

    def __post_init__(self) -> None:
        self._keys: list[jwt.PyJWK] = []
        self._by_name: dict[tuple[str | None, str], jwt.PyJWK | None] = {}
        self._flights: SharedTasks[None, None] = SharedTasks(outlives=True)
        self._began: float | None = None  # Wall-clock time at which the last successful fetch began.
        self._trusted_until = float("-inf")
        self._pause_until = float("-inf")
        self._due = float("-inf")

    @property
    def due(self) -> bool:
        """Whether it is time to fetch, so that no caller has to wait for it."""
        return self._clock() >= self._due and not self._flights.under_way

    @property
    def trust_left(self) -> float:
        """Seconds for which the keys are still trusted if their provider never responds again."""
        return self._trusted_until - self._clock()

    def known(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return a fetched key. Without a name, the only one for the algorithm."""
        return self._by_name.get((kid, algorithm)) if self.trust_left > 0 else None

    async def learn(self, kid: str | None, algorithm: str, issued: float | None) -> None:
        """Wait until the key of a token issued at a wall-clock time is known, with one fetch for all callers. Raises
        Problem: unauthenticated if keys fetched after that do not include it, otherwise busy."""
        arrived = self._wall()
        if self.known(kid, algorithm) is not None:
            return
        if self._flights.under_way or self._clock() >= self._pause_until:
            await self.refresh()
            if self.known(kid, algorithm) is not None:
                return
        wait = max(1.0, self._pause_until - self._clock())
        if self.failures or self._began is None:
            if self._is_redirected:
                what = f"The identity provider {self.issuer} redirects, and the proxy does not follow redirects."
                why = f"{what} The platform's admin must correct the issuer's address."
                raise Problem(ProblemType.BUSY, why, wait, reason="identity-provider")
            raise unanswered(f"The identity provider {self.issuer}", wait)
        if self._began >= (arrived if issued is None else min(issued, arrived)):
            raise refused("None of the issuer's keys signed the token. Get a new one.")
        why = "The token's key is unknown, and the proxy fetched its issuer's keys a moment ago. Try again."
        raise Problem(ProblemType.BUSY, why, wait, reason="identity-provider")

    async def refresh(self) -> None:
        """Fetch the keys now, or wait for the fetch in progress. A failure is only counted."""
        await self._flights.join(None, self._fetch)

    def retry(self) -> None:
        """Let the next caller fetch the keys, if the last fetch failed."""
        if self.failures:
            self._pause_until = self._due = float("-inf")

    async def close(self) -> None:
        await self._flights.close()

    async def _fetch(self) -> None:
        began, wall = self._clock(), self._wall()
        try:
            url = self.jwks_url or await self._discover()
            keys = read_keys(await self._web.get(url))
        except Exception as error:  # no response of a provider may end the fetching
            self.failures += 1
            self._is_redirected = isinstance(error, Redirected)
            if not isinstance(error, NoAnswer | TokenError):
                log.exception("fetching the keys of %s failed unexpectedly", self.issuer)
            elif self.failures == 1:
                log.warning("keys of %s cannot be fetched: %s", self.issuer, error)
            pause = min(self._pause_seconds * 2 ** min(self.failures - 1, 10), _LONGEST_PAUSE_SECONDS)
            self._pause_until = self._clock() + self._pause_seconds
            self._due = self._clock() + pause
            return
        if self.failures:
            log.warning("keys of %s were fetched again, after %d failures", self.issuer, self.failures)
        self.failures = 0
        self._began = wall
        self._trusted_until = began + TRUST_SECONDS
        self._pause_until = self._clock() + self._pause_seconds
        self._due = began + REFRESH_SECONDS
        self._take(keys)

    def _take(self, keys: list[jwt.PyJWK]) -> None:
        before, after = ([(key.key_id, key.key) for key in each] for each in (self._keys, keys))
        self._keys, self._by_name = keys, {}
        for key in keys:
            for name in {(key.key_id, key.algorithm_name), (None, key.algorithm_name)}:
                self._by_name[name] = None if name in self._by_name else key  # an ambiguous name stands for no key
        new, is_fewer = [each for each in after if each not in before], any(each not in after for each in before)
        if new or is_fewer:
            log.info("keys of %s: %d, %d of them new", self.issuer, len(after), len(new))
            self._changed(self.issuer, is_fewer)

    async def _discover(self) -> str:
        document = await self._web.get(self.issuer.rstrip("/") + _DISCOVERY)
        if document.get("issuer") != self.issuer:
            raise NoAnswer("its discovery document names another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or urlsplit(url).scheme not in {"https", urlsplit(self.issuer).scheme}:
            raise NoAnswer("its discovery document has no jwks_uri of the issuer's scheme")
        return url
