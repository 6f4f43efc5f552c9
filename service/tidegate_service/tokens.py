"""JSON Web Tokens (RFC 7519) and their signing keys, verified as in RFC 8725."""

from collections.abc import Collection, Mapping
from typing import Any

import jwt

MOST_KEYS = 100
LEEWAY_SECONDS = 30.0
"""Seconds by which an issuer's clock may be ahead of this one (`nbf`, `iat`). There is no leeway for the expiry."""
MOST_TOKEN_BYTES = 16 * 1024
_ALGORITHMS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
_FEWEST_RSA_BITS = 2048
ALGORITHMS = frozenset(_ALGORITHMS.values())
"""Allowed signature algorithms of a token (RFC 8725, 3.1). Each kind of key has one, and none uses a shared secret."""
_OPTIONS: Any = {
    "verify_exp": False,  # times are compared below: with the caller's clock, and without leeway for the expiry
    "verify_nbf": False,
    "verify_iat": False,
    "enforce_minimum_key_length": True,
}


class TokenError(Exception):
    """A token or a set of keys is refused. The text contains nothing of the token."""


def read_keys(document: Mapping[str, Any]) -> list[jwt.PyJWK]:
    """Return a JWK set's signing keys (RFC 7517), each with its algorithm. Raises TokenError if there is none."""
    published = document.get("keys")
    if not isinstance(published, list):
        raise TokenError("the response is not a JWK set")
    keys = [key for each in published[:MOST_KEYS] if isinstance(each, dict) and (key := _read_key(each)) is not None]
    if not keys:
        raise TokenError("the JWK set has no RSA (of 2048 bits or more), P-256 or Ed25519 key for signatures")
    return keys


def _read_key(published: dict[str, Any]) -> jwt.PyJWK | None:
    curve = published.get("crv")
    kind = published.get("kty")
    if not isinstance(kind, str) or not isinstance(curve, str | None) or "d" in published:
        return None
    algorithm = _ALGORITHMS.get((kind, None if kind == "RSA" else curve))
    operations = published.get("key_ops", ["verify"])
    if (
        algorithm is None
        or published.get("alg", algorithm) != algorithm
        or published.get("use", "sig") != "sig"
        or not isinstance(operations, list)
        or "verify" not in operations
    ):
        return None
    if not isinstance(published.get("kid"), str | None):
        return None
    try:
        jwk = jwt.PyJWK(published, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return None if kind == "RSA" and jwk.key.key_size < _FEWEST_RSA_BITS else jwk


def verified_claims(
    token: str | bytes,
    key: jwt.PyJWK,
    audiences: Collection[str],
    now: float,
    issuer: str | None = None,
    ended: float | None = None,
) -> dict[str, Any]:
    """Return the claims of a token that a key has signed for one of these audiences. Raises TokenError, also if it
    names another algorithm than the key's. `issuer` None is not compared. `ended` replaces `now` for the expiry."""
    options: Any = _OPTIONS | {"require": ["aud", "exp", "sub", *(["iss"] if issuer else [])]}
    try:
        claims: dict[str, Any] = jwt.decode(
            token, key, [key.algorithm_name], options, issuer=issuer, audience=audiences
        )
    except jwt.InvalidAudienceError:
        raise TokenError(f"The token is for another audience. Get one for {' or '.join(audiences)}.") from None
    except jwt.MissingRequiredClaimError as error:
        raise TokenError(f"The token has no `{error.claim}`.") from None
    except jwt.InvalidSignatureError:
        raise TokenError("The token's signature is invalid.") from None
    except jwt.InvalidAlgorithmError:
        raise TokenError("The token's algorithm is not that of its issuer's key.") from None
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenError("The token is not valid.") from None
    expires = _time(claims, "exp")
    if expires is None or expires <= (now if ended is None else ended):
        raise TokenError("The token has expired. Get a new one.")
    for claim in ("nbf", "iat"):
        if (_time(claims, claim) or 0) > now + LEEWAY_SECONDS:
            raise TokenError(f"The token is not valid yet (`{claim}`).")
    return claims


def _time(claims: Mapping[str, Any], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 53:
        raise TokenError(f"The token's `{claim}` is not a time.")
    return float(value)
