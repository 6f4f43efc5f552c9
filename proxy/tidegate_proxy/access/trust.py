"""Trusted credentials: which source checks which one, and JSON Web Tokens (RFC 7519), verified as in RFC 8725."""

import base64
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jwt
import msgspec
from tidegate_contracts.routing import API_KEYS, OidcIssuer
from tidegate_service.tokens import ALGORITHMS, MOST_TOKEN_BYTES, TokenError, verified_claims

from .api_keys import PREFIX, ApiKeys, hash_line
from .identity import LONGEST_NAME, Credential, Identity, Principal, is_name, refused
from .jwks import IssuerKeys
from .web_client import Domino

_NOTHING = msgspec.Raw()


class Header(msgspec.Struct):
    """The header of a token."""

    alg: str
    kid: str | None = None


class Payload(msgspec.Struct):
    """The claims of a token that help to find its key."""

    iss: str
    iat: msgspec.Raw = _NOTHING
    exp: msgspec.Raw = _NOTHING


def peek(token: bytes) -> tuple[Header, Payload] | None:
    """Return a token's unverified header and claims. None if it is not a token."""
    if len(token) > MOST_TOKEN_BYTES or token.count(b".") != 2:
        return None
    try:
        head, body = (base64.urlsafe_b64decode(part + b"==") for part in token.split(b".")[:2])
        return msgspec.json.decode(head, type=Header), msgspec.json.decode(body, type=Payload)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _number(raw: msgspec.Raw) -> float | None:
    try:
        number = float(bytes(raw))
    except ValueError:
        return None
    return number if abs(number) < 1 << 53 else None


def verify(token: bytes, key: jwt.PyJWK, issuer: OidcIssuer, now: float) -> Identity:
    """Return the identity in a token. Raises Problem (unauthenticated), which contains nothing of the token."""
    try:
        claims = verified_claims(token, key, issuer.audiences, now, issuer.issuer)
    except TokenError as error:
        raise refused(str(error)) from None
    if not is_name(claims["sub"]):
        raise refused(f"The token's `sub` is not a string of 1 to {LONGEST_NAME} printable characters.")
    principal = Principal(claims["sub"], groups_of(claims, issuer.groups_claim), issuer.issuer)
    return Identity(principal, float(claims["exp"]))


def groups_of(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    """Return the groups that a claim lists, as a list of strings or a string with spaces (such as `scope`). A claim
    name with dots can be a path (`realm_access.roles`). A claim of exactly that name takes precedence."""
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for step in claim.split("."):
            found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, str):
        return frozenset(found.split())
    return frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()


MOST_CREDENTIAL_BYTES = MOST_TOKEN_BYTES + 64
_HELP = (
    "Send `Authorization: Bearer` with a token of this environment's identity provider, or an API key in that header "
    "or in `X-API-Key`."
)
_NOT_KNOWN = f"Unknown credential: it has the form of neither a token nor an API key. {_HELP}"

Later = Callable[[], Coroutine[Any, Any, Identity | None]]
"""Waits in the caller's task for what a check needs. If it returns None, the credential can now be judged."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer of tokens, and its keys."""

    config: OidcIssuer
    keys: IssuerKeys


@dataclass(frozen=True)
class Trust:
    """The trusted sources of one state of the tables. It never changes."""

    issuers: Mapping[str, Issuer]
    api_keys: ApiKeys
    domino: Domino | None
    wall: Callable[[], float]

    def believe(self, credential: Credential) -> Identity | Later:
        """Return the identity that a credential proves, or how to wait for it. Raises Problem."""
        if not credential:
            raise refused(_HELP)
        if len(credential) > MOST_CREDENTIAL_BYTES:
            raise refused(f"The credential is too long: the limit is {MOST_CREDENTIAL_BYTES} bytes.")
        scheme, _, rest = credential.partition(b" ")
        value = rest.strip()
        if not value or not value.isascii() or not value.decode("ascii").isprintable():
            raise refused(_NOT_KNOWN if value else _HELP)
        scheme = scheme.lower()
        if scheme == b"x-api-key" or (scheme == b"bearer" and value.startswith(PREFIX.encode())):
            return self._api_key(value.decode("ascii"))
        if scheme == b"bearer":
            return self._token(value)
        if scheme == b"x-domino-api-key" and self.domino is not None:
            return partial(self.domino.identify, "X-Domino-Api-Key", value.decode("ascii"))
        raise refused(_NOT_KNOWN)

    def _api_key(self, key: str) -> Identity:
        principal = self.api_keys.get(hash_line(key))
        if principal is None:
            why = "Unknown API key. It may be mistyped, have been replaced, or belong to another environment."
            raise refused(why)
        return Identity(Principal(principal, frozenset(), API_KEYS), float("inf"))

    def _token(self, token: bytes) -> Identity | Later:
        peeked = peek(token)
        issuer = self.issuers.get(peeked[1].iss) if peeked is not None else None
        if peeked is None or issuer is None:
            if self.domino is not None:
                ends = _number(peeked[1].exp) if peeked is not None else None
                return partial(self.domino.identify, "Authorization", f"Bearer {token.decode('ascii')}", ends)
            raise refused(_NOT_KNOWN if peeked is None else "The token's issuer is not trusted by this environment.")
        header, body = peeked
        if header.alg not in ALGORITHMS:
            raise refused(f"The token's algorithm is not allowed. Use one of {', '.join(sorted(ALGORITHMS))}.")
        key = issuer.keys.known(header.kid, header.alg)
        if key is None:
            return partial(issuer.keys.learn, header.kid, header.alg, _number(body.iat))
        now = self.wall()
        identity = verify(token, key, issuer.config, now)
        # If the provider stays silent, its identities end too.
        identity.expires = min(identity.expires, now + issuer.keys.trust_left)
        return identity
