"""JSON Web Tokens (RFC 7519) and the keys that sign them, verified as RFC 8725 advises."""

from collections.abc import Collection, Mapping
from typing import Any

import jwt

MOST_KEYS = 100
LEEWAY_SECONDS = 30.0
"""Seconds by which an issuer's clock may be ahead of this one (`nbf`, `iat`). A token's end is meant exactly."""
MOST_TOKEN_BYTES = 16 * 1024
_ALGORITHMS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
_FEWEST_RSA_BITS = 2048
ALGORITHMS = frozenset(_ALGORITHMS.values())
"""Algorithms that a token may be signed with (RFC 8725, 3.1). Each kind of key has one, and no secret is among them."""
_OPTIONS: Any = {
    "verify_exp": False,  # times are compared below: with the caller's clock, and without leeway for the end
    "verify_nbf": False,
    "verify_iat": False,
    "enforce_minimum_key_length": True,
}


class TokenError(Exception):
    """Says why a token or a set of keys is refused; the text holds nothing of the token."""


def read_keys(document: Mapping[str, Any]) -> list[jwt.PyJWK]:
    """Return the keys of a JWK set (RFC 7517) that sign tokens, each with the one algorithm that it is used with.

    Other keys are left out. Raises TokenError where none is left.
    """
    published = document.get("keys")
    if not isinstance(published, list):
        raise TokenError("the answer is no JWK set")
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
    """Return the claims of a token that a key has signed for one of these audiences; raises TokenError.

    The key decides the algorithm: a token that says another one (`none`, or HMAC with the public key as its secret) is
    refused before anything is computed. `issuer` is not compared where it is None. `ended` is the time
    by which the token's end is judged, if not by `now`.
    """
    options: Any = _OPTIONS | {"require": ["aud", "exp", "sub", *(["iss"] if issuer else [])]}
    try:
        claims: dict[str, Any] = jwt.decode(
            token, key, [key.algorithm_name], options, issuer=issuer, audience=audiences
        )
    except jwt.InvalidAudienceError:
        raise TokenError(f"The token is for others. Get one for the audience {' or '.join(audiences)}.") from None
    except jwt.MissingRequiredClaimError as error:
        raise TokenError(f"The token has no `{error.claim}`.") from None
    except jwt.InvalidSignatureError:
        raise TokenError("The token's signature is wrong.") from None
    except jwt.InvalidAlgorithmError:
        raise TokenError("The token is signed with another algorithm than its issuer's key has.") from None
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenError("The token is not valid.") from None
    expires = _time(claims, "exp")
    if expires is None or expires <= (now if ended is None else ended):
        raise TokenError("The token has ended. Get a new one.")
    for claim in ("nbf", "iat"):
        if (_time(claims, claim) or 0) > now + LEEWAY_SECONDS:
            raise TokenError(f"The token is not valid yet (`{claim}`).")
    return claims


def _time(claims: Mapping[str, Any], claim: str) -> float | None:
    said = claims.get(claim)
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int | float) or not abs(said) < 1 << 53:
        raise TokenError(f"The token's `{claim}` is no time.")
    return float(said)
