"""The identities of callers, and bounded caches of them that keep an entry until it expires."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeGuard

from ..concurrency import InFlightCount
from ..problems import Problem, ProblemType
from ..routes import Route
from ..targets import GrantKey
from .limits import TOKENS, TokenBucket

LONGEST_NAME = 255  # Characters of a principal's name (of `sub`: OpenID Connect Core, 2).
Credential = bytes
"""A caller's credential as one value: the value of `Authorization`, or the lower-case header name (`x-api-key`,
`x-domino-api-key`), a space and the value. Empty if the caller sent none."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller, as rules and limits name it."""

    name: str  # `sub` of a token, or the principal of an API key.
    groups: frozenset[str]
    source: str  # The authority for it: an issuer's URL, `api-keys` or `domino`.


@dataclass(slots=True)
class Identity:
    """A principal as one credential proved it, and its known rights."""

    principal: Principal
    expires: float  # Wall-clock time, in seconds, at which the credential expires. Infinity for an API key.
    grants: "dict[GrantKey, Grant]" = field(default_factory=dict, repr=False)
    """Granted actions. Bounded by the authorizer."""
    credential: Credential = field(default=b"", repr=False)  # Its proof. Never shown.
    generation: int = 0  # State of rules and routes that `grants` belongs to. In any other state they are void.
    in_flight: InFlightCount = field(default_factory=InFlightCount, repr=False)
    """Its calls in progress. One object for all credentials of a principal."""


@dataclass(slots=True)
class Grant:
    """Permission for one principal to do one thing with one model, while its identity is valid."""

    identity: Identity
    route: Route
    bucket: TokenBucket | None  # Limits its requests. None if they are not limited (inspecting).
    tokens: TokenBucket | None = None  # Limits the tokens they use, if these are limited and reported.

    def count(self, now: float) -> None:
        """Count a request. Raises Problem (rate-limited)."""
        if self.tokens is not None and (wait := self.tokens.take(now, 0)):
            rate = f"{self.tokens.rate * 60:.4g} tokens a minute"
            why = f"Your limit for this model is {rate} on this proxy replica, and it is used up."
            raise Problem(ProblemType.RATE_LIMITED, why, wait, reason=TOKENS)
        if self.bucket is not None and (wait := self.bucket.take(now)):
            rate = f"{self.bucket.rate * 60:.4g} requests a minute, {self.bucket.burst:g} at once"
            why = f"Your limit for this model is {rate}, on this proxy replica."
            raise Problem(ProblemType.RATE_LIMITED, why, wait)


def is_name(value: object) -> TypeGuard[str]:
    """Return whether this can be a principal's name."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()


def refused(detail: str) -> Problem:
    """Return the problem of an invalid credential. `detail` contains nothing of it."""
    return Problem(ProblemType.UNAUTHENTICATED, detail)


def unanswered(who: str, retry_after: float) -> Problem:
    """Return the problem of a credential that cannot be checked now: it may be valid, so this is not a refusal."""
    why = f"{who} does not respond, so the proxy cannot authenticate you. Send the request again."
    return Problem(ProblemType.BUSY, why, retry_after, reason="identity-provider")


MOST_IDENTITIES = 16_384
MOST_CREDENTIAL_BYTES = 16 * 1024 * 1024  # Bytes of all remembered credentials together.
MOST_GRANTS = 65_536  # Grants of all identities together.
MOST_GRANTS_EACH = 1024
MOST_REFUSALS = 4096
REFUSED_SECONDS = 5.0  # Seconds for which a refused credential is refused without a check.
TAIL = 48
"""Last bytes of a credential, for a look-up before a full comparison: part of a token's signature, or an API key's
random part. Hashing a whole token for each request would take longer than everything else."""


class IdentityCache:
    """Identities by credential. The oldest entry is evicted first."""

    def __init__(
        self, most: int = MOST_IDENTITIES, most_bytes: int = MOST_CREDENTIAL_BYTES, most_grants: int = MOST_GRANTS
    ) -> None:
        self.by_tail: OrderedDict[bytes, Identity] = OrderedDict()
        self.bytes = 0
        self.grants = 0
        self._most = most
        self._most_bytes = most_bytes
        self._most_grants = most_grants

    def find(self, credential: Credential) -> Identity | None:
        """Return the identity that a credential proved, even if it has expired."""
        identity = self.by_tail.get(credential[-TAIL:])
        return identity if identity is not None and identity.credential == credential else None

    def remember(self, credential: Credential, identity: Identity) -> None:
        """Keep an identity, and evict others if there are too many."""
        self.forget(credential[-TAIL:])
        identity.credential = credential
        self.by_tail[credential[-TAIL:]] = identity
        self.bytes += len(credential)
        while len(self.by_tail) > self._most or (self.bytes > self._most_bytes and len(self.by_tail) > 1):
            self.forget(next(iter(self.by_tail)))

    def grant(self, identity: Identity, key: GrantKey, grant: Grant) -> None:
        """Keep a grant with its identity, if that is remembered."""
        if self.by_tail.get(identity.credential[-TAIL:]) is not identity:
            return
        if len(identity.grants) >= MOST_GRANTS_EACH:
            self.clear(identity)
        if key not in identity.grants:
            self.grants += 1
        identity.grants[key] = grant
        while self.grants > self._most_grants and len(self.by_tail) > 1:
            self.forget(next(iter(self.by_tail)))

    def clear(self, identity: Identity) -> None:
        self.grants -= len(identity.grants)
        identity.grants = {}

    def forget(self, tail: bytes) -> None:
        identity = self.by_tail.pop(tail, None)
        if identity is not None:
            self.bytes -= len(identity.credential)
            self.clear(identity)

    def forget_sources(self, sources: set[str]) -> None:
        """Forget the identities that one of these sources authenticated."""
        for tail in [tail for tail, identity in self.by_tail.items() if identity.principal.source in sources]:
            self.forget(tail)

    def sweep(self, now: float, generation: int, most: int) -> None:
        """Look at some identities: forget the expired ones and the grants of other generations."""
        by_tail = self.by_tail
        for _ in range(min(most, len(by_tail))):
            tail = next(iter(by_tail))
            identity = by_tail[tail]
            if identity.expires <= now:
                self.forget(tail)
                continue
            by_tail.move_to_end(tail)
            if identity.generation != generation:
                self.clear(identity)
                identity.generation = generation


class RefusalCache:
    """Recently refused credentials, by digest: a flood of one invalid credential costs little."""

    def __init__(self, most: int = MOST_REFUSALS) -> None:
        self._until: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._most = most

    def check(self, credential: Credential, now: float) -> None:
        """Raise Problem (unauthenticated) for a recently refused credential."""
        if not self._until:
            return
        until, detail = self._until.get(_digest(credential), (now, ""))
        if until > now:
            raise refused(detail)

    def add(self, credential: Credential, detail: str, now: float) -> None:
        digest = _digest(credential)
        self._until.pop(digest, None)
        if len(self._until) >= self._most:
            self._until.popitem(last=False)
        self._until[digest] = (now + REFUSED_SECONDS, detail)

    def clear(self) -> None:
        """Forget all refusals, because the trusted sources have changed."""
        self._until.clear()


def _digest(credential: Credential) -> bytes:
    return hashlib.sha256(credential).digest()[:16]
