"""The identity provider of the tests signs what its published keys vouch for, and fails as it is told to."""

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any

import jwt
import pytest

from .issuer import AUDIENCE, CONFIGURATION_PATH, Issuer, issuer


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_is_vouched_for_by_the_published_key(algorithm: str) -> None:
    with issuer(algorithm) as provider:
        token = provider.token("alice", groups=["callers"])
        keys = jwt.PyJWKSet.from_dict(get(get(provider.url + CONFIGURATION_PATH)["jwks_uri"]))
        kid = jwt.get_unverified_header(token)["kid"]
        found = jwt.decode(token, keys[kid].key, [algorithm], audience=AUDIENCE, issuer=provider.url)
    assert (found["sub"], found["groups"]) == ("alice", ["callers"])


def test_keys_rotate(identity_provider: Issuer) -> None:
    before = get(identity_provider.jwks_url)["keys"]
    new = identity_provider.new_key()
    assert [key["kid"] for key in get(identity_provider.jwks_url)["keys"]] == [before[0]["kid"], new.kid]
    assert jwt.get_unverified_header(identity_provider.token())["kid"] == new.kid


def test_it_can_be_down_and_slow(identity_provider: Issuer) -> None:
    identity_provider.down = True
    with pytest.raises((urllib.error.URLError, http.client.HTTPException, ConnectionError)):
        get(identity_provider.jwks_url)
    identity_provider.down, identity_provider.delay_seconds = False, 0.3
    begin = time.monotonic()
    get(identity_provider.jwks_url)
    assert time.monotonic() - begin >= 0.3


def test_claims_can_be_anything_or_nothing(identity_provider: Issuer) -> None:
    token = identity_provider.token(exp=None, aud="somebody else", roles=["r"])
    claims = jwt.decode(token, options={"verify_signature": False})
    assert "exp" not in claims
    assert (claims["aud"], claims["roles"]) == ("somebody else", ["r"])
