"""Who is believed: which proof is checked by whom."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tidegate_contracts.routing import API_KEYS, OidcIssuer

from . import api_keys, tokens
from .api_keys import ApiKeys
from .domino import Domino
from .identity import Credential, Identity, Principal
from .jwks import ALGORITHMS, IssuerKeys, Key
from .refusals import refused
from .single_flight import SingleFlight
from .tokens import Claimed

MOST_CREDENTIAL_BYTES = tokens.MOST_TOKEN_BYTES + 64
_HELP = (
    "Send `Authorization: Bearer` and a token of this environment's identity provider, or an API key in that header "
    "or in `X-API-Key`."
)

Later = Callable[[], Coroutine[Any, Any, Identity]]


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer of tokens, and its keys."""

    told: OidcIssuer
    keys: IssuerKeys


@dataclass(frozen=True)
class Trust:
    """Made once from the tables and never changed; other tables make another one."""

    issuers: Mapping[str, Issuer]
    api_keys: ApiKeys
    domino: Domino | None
    wall: Callable[[], float]
    flights: SingleFlight[Identity] = field(default_factory=SingleFlight)
    """Credentials that are being checked. What was begun under other tables is not joined."""

    def believe(self, credential: Credential) -> Identity | Later:
        """Return whom a credential proves, or how to wait for it; raises Problem (unauthenticated, busy)."""
        if not credential:
            raise refused(_HELP)
        if len(credential) > MOST_CREDENTIAL_BYTES:
            raise refused(f"A credential may have {MOST_CREDENTIAL_BYTES} bytes.")
        scheme, _, rest = credential.partition(b" ")
        value = rest.strip()
        if not value or not value.isascii() or not value.decode("ascii").isprintable():
            raise refused(_HELP)
        scheme = scheme.lower()
        if scheme == b"x-api-key" or (scheme == b"bearer" and value.startswith(api_keys.PREFIX.encode())):
            return self._api_key(value.decode("ascii"))
        if scheme == b"bearer":
            return self._token(value)
        if scheme == b"x-domino-api-key" and self.domino is not None:
            return partial(self.domino.identify, "X-Domino-Api-Key", value.decode("ascii"))
        raise refused(_HELP)

    def _api_key(self, key: str) -> Identity:
        if not api_keys.is_whole(key):
            raise refused("This is no whole API key: look for signs that are missing or mistyped.")
        principal = self.api_keys.principal_of(key)
        if principal is None:
            raise refused("Nobody here has this API key: it may have been replaced, or be another environment's.")
        return Identity(Principal(principal, frozenset(), API_KEYS), float("inf"))

    def _token(self, token: bytes) -> Identity | Later:
        claimed = tokens.peek(token)
        issuer = self.issuers.get(claimed.issuer) if claimed is not None else None
        if claimed is None or issuer is None:
            if self.domino is not None:
                ends = claimed.expires if claimed is not None else None
                return partial(self.domino.identify, "Authorization", f"Bearer {token.decode('ascii')}", ends)
            raise refused(_HELP if claimed is None else "The token is of an issuer that is not believed here.")
        if claimed.algorithm not in ALGORITHMS:
            raise refused(f"A token is signed with one of {', '.join(sorted(ALGORITHMS))} here.")
        key = issuer.keys.known(claimed.kid, claimed.algorithm)
        if key is None:
            return partial(self._token_later, token, claimed, issuer)
        return self._verified(token, key, issuer)

    async def _token_later(self, token: bytes, claimed: Claimed, issuer: Issuer) -> Identity:
        key = await issuer.keys.find(claimed.kid, claimed.algorithm, claimed.issued)
        return self._verified(token, key, issuer)

    def _verified(self, token: bytes, key: Key, issuer: Issuer) -> Identity:
        now = self.wall()
        identity = tokens.verify(token, key, issuer.told, now)
        # A provider that stays silent ends what it vouched for, too.
        identity.expires = min(identity.expires, now + issuer.keys.trust_left)
        return identity
