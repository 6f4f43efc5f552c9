"""The identity of a caller, while its proof holds, and what is remembered of callers: bounded, until it ends."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeGuard

from ..concurrency import InFlightCount
from ..problems import Problem, ProblemType
from ..routes import Route
from ..targets import Asked
from .limits import TOKENS, TokenBucket

LONGEST_NAME = 255  # Characters of a principal's name (of `sub`: OpenID Connect Core, 2).
Credential = bytes
"""What a caller sent to say who it is, as one value: an `Authorization` header's value, or that of `X-API-Key` or
`X-Domino-Api-Key` after the header's lower-case name and a space. Empty for a caller that sent nothing."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller, as rules and limits see it."""

    name: str  # `sub` of a token, or the principal of an API key.
    groups: frozenset[str]
    source: str  # What vouches for it: an issuer's URL, `api-keys` or `domino`.


@dataclass(slots=True)
class Identity:
    """A principal as one credential proved it, and what was found out about its rights since."""

    principal: Principal
    expires: float  # When the credential ends: seconds of wall-clock time (`exp` of a token), infinity for an API key.
    grants: "dict[Asked, Grant]" = field(default_factory=dict, repr=False)
    """What is granted; bounded by the authorizer."""
    credential: Credential = field(default=b"", repr=False)  # What proved it; never shown.
    generation: int = 0  # Which state of rules and routes `grants` belongs to; in any other state they are void.
    in_flight: InFlightCount = field(default_factory=InFlightCount, repr=False)
    """Its calls under way; one object for all credentials of a principal."""


@dataclass(slots=True)
class Grant:
    """Leave for one principal to do one thing with one model, for as long as its identity holds."""

    identity: Identity
    route: Route
    bucket: TokenBucket | None  # Limits its requests; None for what is not limited (inspecting).
    tokens: TokenBucket | None = None  # Limits what they use, where that is limited and told.

    def count(self, now: float) -> None:
        """Count a request; raises Problem (rate-limited)."""
        if self.tokens is not None and (wait := self.tokens.take(now, 0)):
            rate = f"{self.tokens.rate * 60:.4g} tokens a minute"
            why = f"You may use {rate} of this model through this proxy, and have used all of them."
            raise Problem(ProblemType.RATE_LIMITED, why, wait, reason=TOKENS)
        if self.bucket is not None and (wait := self.bucket.take(now)):
            rate = f"{self.bucket.rate * 60:.4g} requests a minute, {self.bucket.burst:g} at once"
            raise Problem(ProblemType.RATE_LIMITED, f"You may send this model {rate} through this proxy.", wait)


def is_name(said: object) -> TypeGuard[str]:
    """Tell whether this can be a principal's name."""
    return isinstance(said, str) and 0 < len(said) <= LONGEST_NAME and said.isprintable()


def refused(detail: str) -> Problem:
    """Return the problem of a credential that is known to be wrong. `detail` holds nothing of it."""
    return Problem(ProblemType.UNAUTHENTICATED, detail)


def unanswered(who: str, retry_after: float) -> Problem:
    """Return the problem of a credential that cannot be checked now: it may be right, so it is not called wrong."""
    why = f"{who} does not answer, so it cannot be known who you are. Send the request again."
    return Problem(ProblemType.BUSY, why, retry_after, reason="identity-provider")


MOST_IDENTITIES = 16_384
MOST_CREDENTIAL_BYTES = 16 * 1024 * 1024  # Bytes of all remembered credentials together.
MOST_GRANTS = 65_536  # Grants of all identities together.
MOST_GRANTS_EACH = 1024
MOST_REFUSALS = 4096
REFUSED_SECONDS = 5.0  # Seconds for which a refused credential is refused unseen.
TAIL = 48
"""A credential's last bytes, by which it is looked up and then compared whole: of a token they are its signature's, of
an API key its random part. Hashing all of a token at each request would take longer than everything else."""


class IdentityCache:
    """Identities by credential. What was remembered first goes first."""

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
        """Return the identity that a credential proved; whether it still does is not asked here."""
        identity = self.by_tail.get(credential[-TAIL:])
        return identity if identity is not None and identity.credential == credential else None

    def remember(self, credential: Credential, identity: Identity) -> None:
        """Keep an identity, and forget others where there are too many."""
        self.forget(credential[-TAIL:])
        identity.credential = credential
        self.by_tail[credential[-TAIL:]] = identity
        self.bytes += len(credential)
        while len(self.by_tail) > self._most or (self.bytes > self._most_bytes and len(self.by_tail) > 1):
            self.forget(next(iter(self.by_tail)))

    def grant(self, identity: Identity, key: Asked, grant: Grant) -> None:
        """Keep a grant with its identity; one that is not remembered keeps none."""
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
        """Forget the grants of an identity."""
        self.grants -= len(identity.grants)
        identity.grants = {}

    def forget(self, tail: bytes) -> None:
        """Forget an identity."""
        identity = self.by_tail.pop(tail, None)
        if identity is not None:
            self.bytes -= len(identity.credential)
            self.clear(identity)

    def forget_sources(self, sources: set[str]) -> None:
        """Forget the identities that one of these vouched for."""
        for tail in [tail for tail, identity in self.by_tail.items() if identity.principal.source in sources]:
            self.forget(tail)

    def sweep(self, now: float, generation: int, most: int) -> None:
        """Look at some, forget those that have ended, and the grants of other generations."""
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
    """Credentials that were refused a moment ago, by their digest: a flood of a bad one costs little."""

    def __init__(self, most: int = MOST_REFUSALS) -> None:
        self._until: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._most = most

    def check(self, credential: Credential, now: float) -> None:
        """Refuse what was refused; raises Problem (unauthenticated)."""
        if not self._until:
            return
        until, detail = self._until.get(_digest(credential), (now, ""))
        if until > now:
            raise refused(detail)

    def add(self, credential: Credential, detail: str, now: float) -> None:
        """Remember a refusal."""
        digest = _digest(credential)
        self._until.pop(digest, None)
        if len(self._until) >= self._most:
            self._until.popitem(last=False)
        self._until[digest] = (now + REFUSED_SECONDS, detail)

    def clear(self) -> None:
        """Forget all: what is believed has changed."""
        self._until.clear()


def _digest(credential: Credential) -> bytes:
    return hashlib.sha256(credential).digest()[:16]
