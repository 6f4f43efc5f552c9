import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_proxy.access import trust
from tidegate_proxy.access.api_keys import PREFIX
from tidegate_proxy.access.authorizer import Authorizer
from tidegate_proxy.problems import Problem, ProblemType
from tidegate_service.tokens import MOST_TOKEN_BYTES, read_keys

from ..rigs.issuer import AUDIENCE, Issuer, PrivateKey, public_jwk, rsa_key
from .provider import part
from .tables import Clock, access, gate, gate_for, issuer_of, kind_of, problem_of, rule

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "new_key",
    [partial(rsa_key, "first"), partial(ec.generate_private_key, ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate],
    ids=["RS256", "ES256", "EdDSA"],
)
async def test_a_token_of_a_known_issuer_names_its_principal(
    provider: Issuer, new_key: Callable[[], PrivateKey]
) -> None:
    provider.keys = {"k": new_key()}
    authorizer: Authorizer = gate_for(provider)
    credential = provider.bearer(groups=["scientists", "staff"])
    assert authorizer.known(credential, (None, "a", "infer", None)) is None
    grant = await authorizer.ask(credential, None, "a", "infer")
    principal = grant.identity.principal
    assert (principal.name, principal.source) == ("alice", provider.url)
    assert principal.groups == {"scientists", "staff"}
    assert (grant.route.server, grant.route.name) == ("main", "a")
    assert authorizer.known(credential, (None, "a", "infer", None)) is grant


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"aud": "tidegate-prod"}, f"Get one for {AUDIENCE}"),
        ({"aud": []}, "`aud`"),
        ({"aud": None}, "`aud`"),
        ({"exp": None}, "`exp`"),
        ({"exp": 1}, "has expired"),
        ({"exp": "9999999999"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": 10**400}, "not a time"),
        ({"nbf": 9_999_999_999}, "not valid yet (`nbf`)"),
        ({"iat": 9_999_999_999}, "not valid yet (`iat`)"),
        ({"nbf": "now"}, "not a time"),
        ({"sub": None}, "`sub`"),
        ({"sub": ""}, "`sub`"),
        ({"sub": 7}, "not valid"),
        ({"sub": ["alice"]}, "not valid"),
        ({"sub": "a\nb"}, "`sub`"),
        ({"sub": "x" * 256}, "`sub`"),
        ({"iss": "https://elsewhere.example"}, "not trusted"),
        ({"iss": None}, "Bearer"),
    ],
)
async def test_a_token_with_wrong_claims_is_refused(provider: Issuer, wrong: dict[str, Any], what: str) -> None:
    claims = {name: value for name, value in (provider.claims() | wrong).items() if value is not None}
    # Written by hand, because PyJWT would not even sign some of them.
    signing_input = f"{part({'alg': 'RS256', 'kid': 'first'})}.{part(claims)}"
    signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(
        signing_input.encode(), rsa_key("first")
    )
    token = f"{signing_input}.{part(signature)}"
    problem = await problem_of(gate_for(provider), f"Bearer {token}".encode())
    assert problem.type is ProblemType.UNAUTHENTICATED
    assert what in problem.detail
    assert token[:20] not in problem.detail


def without_signature(provider: Issuer, algorithm: str) -> str:
    return f"{part({'alg': algorithm, 'kid': 'first'})}.{part(provider.claims())}."


def with_others_claims(provider: Issuer) -> str:
    head, _, signature = provider.sign().split(".")
    return f"{head}.{part(provider.claims(sub='root'))}.{signature}"


def signed(provider: Issuer, algorithm: str, key: PrivateKey | None = None, **headers: Any) -> str:
    return jwt.encode(provider.claims(), key or rsa_key("first"), algorithm, headers={"kid": "first"} | headers)


def with_its_own_key(provider: Issuer) -> str:
    key = rsa_key("attacker")
    return signed(
        provider, "RS256", key, jwk=public_jwk(key), jku="http://127.0.0.1:1/keys", x5u="http://127.0.0.1:1/x"
    )


@pytest.mark.parametrize(
    ("forged", "what"),
    [
        *((partial(without_signature, algorithm=each), "ES256") for each in ("none", "None", "NONE", "")),
        *((partial(signed, algorithm=each), "ES256") for each in ("PS256", "RS384", "RS512")),
        (partial(signed, algorithm="ES256", key=ec.generate_private_key(ec.SECP256R1())), "None of the issuer's keys"),
        (with_its_own_key, "signature is invalid"),
        (with_others_claims, "signature is invalid"),
        (lambda provider: provider.sign(headers={"crit": ["x"], "x": 1}), "not valid"),
    ],
)
async def test_a_forged_token_is_refused(provider: Issuer, forged: Callable[[Issuer], str], what: str) -> None:
    problem = await problem_of(gate_for(provider), f"Bearer {forged(provider)}".encode())
    assert problem.type is ProblemType.UNAUTHENTICATED
    assert what in problem.detail


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("form", ["pem", "der", "jwk"])
async def test_a_public_key_is_no_secret_for_hmac(provider: Issuer, algorithm: str, form: str) -> None:
    public = rsa_key("first").public_key()
    shape = serialization.PublicFormat.SubjectPublicKeyInfo
    secret = {
        "pem": public.public_bytes(serialization.Encoding.PEM, shape),
        "der": public.public_bytes(serialization.Encoding.DER, shape),
        "jwk": json.dumps(public_jwk(rsa_key("first"), kid="first")).encode(),
    }[form]
    signing_input = f"{part({'alg': algorithm, 'kid': 'first'})}.{part(provider.claims())}"
    digest = hmac.new(secret, signing_input.encode(), getattr(hashlib, f"sha{algorithm[2:]}")).digest()
    token = f"{signing_input}.{part(digest)}".encode()
    assert await kind_of(gate_for(provider), b"Bearer " + token) is ProblemType.UNAUTHENTICATED
    # Nor if the check of the algorithm's name is bypassed: the key itself decides.
    (key,) = read_keys(provider.jwks())
    with pytest.raises(Problem):
        trust.verify(token, key, issuer_of(provider), provider.claims()["iat"])


async def test_a_token_that_is_too_long_is_refused_unread(provider: Issuer) -> None:
    credential = provider.bearer(more="x" * MOST_TOKEN_BYTES)
    assert await kind_of(gate_for(provider), credential) is ProblemType.UNAUTHENTICATED
    assert provider.requests == 0


NESTED = b'{"iss":"x","more":' + b"[" * 5000 + b"]" * 5000 + b"}"
DEEP = f"Bearer {part({'alg': 'RS256'})}.{part(NESTED)}.x".encode()


@pytest.mark.parametrize(
    "credential",
    [b"", b" ", b"Bearer", b"Bearer ", b"Basic YTpi", b"Bearer a.b.c", b"Bearer ..", b"Bearer \xff.\xff.\xff",
     b"x-api-key ", b"x-domino-api-key x", b"Bearer a\x00b", b"Negotiate x", b"Bearer " + b"e30." * 3, DEEP],
)  # fmt: skip
async def test_a_malformed_credential_is_refused_with_help(provider: Issuer, credential: bytes) -> None:
    problem = await problem_of(gate_for(provider), credential)
    assert problem.type is ProblemType.UNAUTHENTICATED
    assert "`Authorization: Bearer`" in problem.detail
    assert PREFIX not in problem.detail, "what begins like a key is taken for one where logs are searched"
    assert ("Unknown credential" in problem.detail) is bool(credential.partition(b" ")[2].strip())


async def test_a_token_ends_at_once(provider: Issuer, clock: Clock) -> None:
    """A kept-alive connection gains nothing, because each request is checked again."""
    clock.wall_now = int(clock.wall_now)
    authorizer = gate_for(provider, clock)
    credential = provider.bearer(exp=int(clock.wall()) + 60)
    grant = await authorizer.ask(credential, None, "a", "infer")
    assert grant.identity.expires == int(clock.wall()) + 60
    clock.goes_on(58.5)
    assert authorizer.known(credential, (None, "a", "infer", None)) is grant
    clock.goes_on(1.5)
    assert authorizer.known(credential, (None, "a", "infer", None)) is None
    problem = await problem_of(authorizer, credential)
    assert (problem.type, problem.detail) == (ProblemType.UNAUTHENTICATED, "The token has expired. Get a new one.")


async def test_an_issuers_clock_may_be_a_little_ahead(provider: Issuer, clock: Clock) -> None:
    authorizer = gate_for(provider, clock)
    soon = int(clock.wall()) + 20
    assert await authorizer.identify(provider.bearer(nbf=soon, iat=soon))
    assert await kind_of(authorizer, provider.bearer(nbf=soon + 60)) is ProblemType.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("claim", "claims", "groups"),
    [
        ("groups", {"groups": ["a", "b"]}, {"a", "b"}),
        ("groups", {"groups": "a b  c"}, {"a", "b", "c"}),
        ("groups", {"groups": ["a", 1, None, ["b"]]}, {"a"}),
        ("groups", {}, set()),
        ("groups", {"groups": {"a": 1}}, set()),
        ("groups", {"groups": 5}, set()),
        ("realm_access.roles", {"realm_access": {"roles": ["r"]}}, {"r"}),
        ("realm_access.roles", {"realm_access": ["roles"]}, set()),
        ("realm_access.roles", {"realm_access.roles": ["flat"], "realm_access": {"roles": ["r"]}}, {"flat"}),
        ("https://example.com/groups", {"https://example.com/groups": ["g"]}, {"g"}),
        ("resource_access.app.roles", {"resource_access": {"app": {"roles": "x"}}}, {"x"}),
    ],
)
async def test_groups_are_read_from_the_configured_claim(
    provider: Issuer, claim: str, claims: dict[str, Any], groups: set[str]
) -> None:
    identity = await gate_for(provider, groups_claim=claim).identify(provider.bearer(**claims))
    assert identity.principal.groups == groups


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
any_claims = st.dictionaries(
    st.sampled_from(["iss", "aud", "exp", "sub", "nbf", "iat", "groups", "jti"]), json_values, max_size=5
)
any_headers = st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64"]), json_values)


@settings(deadline=None)
@given(any_claims, any_headers)
def test_any_signed_token_is_accepted_or_refused(claims: dict[str, Any], headers: dict[str, Any]) -> None:
    """Even the holder of a valid key causes no internal error."""
    trusted = issuer_of(Issuer("http://idp.example"))
    (key,) = read_keys({"keys": [public_jwk(rsa_key("first"), kid="first")]})
    good = Issuer("http://idp.example").claims()
    header = part({"alg": "RS256", "kid": "first"} | headers)
    signing_input = f"{header}.{part(good | claims)}"
    sign = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign
    token = f"{signing_input}.{part(sign(signing_input.encode(), rsa_key('first')))}".encode()
    trust.peek(token)
    try:
        identity = trust.verify(token, key, trusted, good["iat"])
    except Problem as refusal:
        outcome = refusal.type.word
    else:
        outcome = identity.principal.name
    assert outcome in ("unauthenticated", (good | claims)["sub"])


@settings(deadline=None)
@given(st.binary(max_size=300) | st.from_regex(rb"[A-Za-z0-9_-]{0,40}\.[A-Za-z0-9_=-]{0,40}\.[A-Za-z0-9_-]{0,40}"))
def test_any_text_that_is_no_token_is_refused(text: bytes) -> None:
    authorizer = gate(access(rule(principals=("*",))))

    async def ask() -> ProblemType:
        return await kind_of(authorizer, b"Bearer " + text)

    assert asyncio.run(ask()) is ProblemType.UNAUTHENTICATED
