import asyncio
import logging
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm
from tidegate_proxy.access import jwks
from tidegate_proxy.access.authorizer import Authorizer
from tidegate_proxy.access.jwks import IssuerKeys
from tidegate_proxy.problems import ProblemType
from tidegate_proxy.settings import Tunables
from tidegate_service.tokens import TokenError, read_keys

from ..rigs.issuer import Issuer, public_jwk, rsa_key
from .tables import Clock, gate_for, kind_of, problem_of

pytestmark = pytest.mark.anyio


def keys_of(authorizer: Authorizer, provider: Issuer) -> IssuerKeys:
    return authorizer._trust.issuers[provider.url].keys


async def test_keys_are_found_by_discovery(provider: Issuer) -> None:
    authorizer = gate_for(provider, jwks_url=None)
    assert await authorizer.identify(provider.bearer())
    assert (provider.discovered, provider.requests) == (1, 1)


async def test_requests_to_an_issuer_use_the_web_proxy_of_the_environment(
    provider: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", provider.url.removesuffix("/realms/dev"))
    provider.url = "http://idp.invalid/realms/dev"
    assert await gate_for(provider).identify(provider.bearer())
    monkeypatch.setenv("NO_PROXY", ".invalid")
    assert await kind_of(gate_for(provider), provider.bearer()) is ProblemType.BUSY


@pytest.mark.parametrize(
    "document",
    [{"doc_issuer": "https://elsewhere.example"}]
    + [{"doc_jwks_uri": uri} for uri in ("file:///etc/passwd", "ftp://127.0.0.1/x", "certs")],
)
async def test_discovery_of_another_issuer_or_scheme_is_not_trusted(provider: Issuer, document: dict[str, str]) -> None:
    for name, value in document.items():
        setattr(provider, name, value)
    assert await kind_of(gate_for(provider, jwks_url=None), provider.bearer()) is ProblemType.BUSY
    assert provider.requests == 0


async def test_a_redirect_is_not_followed_its_target_is_logged_and_callers_read_that_it_stays(
    provider: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    provider.mode = "moved"
    problem = await problem_of(gate_for(provider), provider.bearer())
    assert (problem.type, "does not follow redirects" in problem.detail) == (ProblemType.BUSY, True)
    assert f"it redirects to {provider.url}/moved" in caplog.text


@pytest.mark.parametrize("mode", ["error", "junk", "empty", "huge", "slow", "gone"])
async def test_a_failing_provider_makes_calls_busy_and_not_unauthorised(provider: Issuer, mode: str) -> None:
    """A token that cannot be checked may be valid, so its owner must retry instead of logging in again."""
    provider.mode = mode
    where = "http://127.0.0.1:1/certs" if mode == "gone" else provider.jwks_url
    authorizer = gate_for(provider, seconds=0.3, jwks_url=where)
    begun = time.monotonic()
    problem = await problem_of(authorizer, provider.bearer())
    assert time.monotonic() - begun < 2
    assert problem.type is ProblemType.BUSY
    assert problem.retry_after is not None
    assert 0 < problem.retry_after <= Tunables.key_pause_seconds
    assert "identity provider" in problem.detail
    assert "eyJ" not in problem.detail


async def test_known_keys_go_on_while_the_provider_is_down_and_unknown_ones_are_not_trusted(
    provider: Issuer, clock: Clock
) -> None:
    authorizer = gate_for(provider, clock)
    known = provider.bearer(exp=int(clock.wall()) + 10**6)
    await authorizer.identify(known)
    provider.mode = "error"
    clock.goes_on(jwks.REFRESH_SECONDS + 1)
    await keys_of(authorizer, provider).refresh()
    assert await authorizer.identify(provider.bearer(sub="bob", exp=int(clock.wall()) + 10**6))
    provider.keys = {"second": rsa_key("second")}
    assert await kind_of(authorizer, provider.bearer(exp=int(clock.wall()) + 100)) is ProblemType.BUSY
    # … for a bounded time, after which existing grants end, too.
    clock.goes_on(jwks.TRUST_SECONDS)
    assert authorizer.known(known, (None, "a", "infer", None)) is None
    assert await kind_of(authorizer, known) is ProblemType.BUSY
    provider.mode = "well"
    provider.keys = {"first": rsa_key("first")}
    clock.goes_on(Tunables.key_pause_seconds)
    assert await authorizer.identify(known)


async def test_a_rotated_key_is_found_at_its_first_use(provider: Issuer, clock: Clock) -> None:
    authorizer = gate_for(provider, clock)
    old = provider.bearer()
    await authorizer.identify(old)
    clock.goes_on(Tunables.key_pause_seconds)
    provider.keys = {"second": rsa_key("second"), "first": rsa_key("first")}
    assert (await authorizer.identify(provider.bearer("second", sub="bob"))).principal.name == "bob"
    assert await authorizer.identify(old)
    assert provider.requests == 2


@pytest.mark.parametrize("name", ["second", "first"])
async def test_tokens_end_when_their_key_is_withdrawn_or_replaced(provider: Issuer, clock: Clock, name: str) -> None:
    authorizer = gate_for(provider, clock)
    credential = provider.bearer()
    await authorizer.ask(credential, None, "a", "infer")
    provider.published = {name: rsa_key("second")}
    clock.goes_on(Tunables.key_pause_seconds)
    await keys_of(authorizer, provider).refresh()
    assert authorizer.known(credential, (None, "a", "infer", None)) is None
    assert await kind_of(authorizer, credential) is ProblemType.UNAUTHENTICATED


@pytest.mark.parametrize("named", [True, False], ids=["each with its own key", "with one key"])
async def test_checks_whose_callers_have_left_leave_nothing_but_one_fetch(provider: Issuer, named: bool) -> None:
    provider.mode = "slow"
    authorizer = gate_for(provider)
    for number in range(300):
        token = provider.bearer(None, headers={"kid": f"made-up-{number * named}"}, sub=f"s{number}")
        leaving = asyncio.ensure_future(authorizer.identify(token))
        await asyncio.sleep(0)
        leaving.cancel()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) <= 3, "this test, the fetch, and the last caller"
    staying = asyncio.ensure_future(authorizer.identify(provider.bearer()))
    assert (await staying).principal.name == "alice"
    assert provider.requests == 1


async def test_keys_are_fetched_again_before_any_caller_waits(provider: Issuer, clock: Clock) -> None:
    authorizer = gate_for(provider, clock)
    tending = asyncio.create_task(authorizer.tend(0.01))

    async def fetched(times: int) -> None:
        async with asyncio.timeout(5):
            while provider.requests < times or keys_of(authorizer, provider)._flights._under_way:
                await asyncio.sleep(0.01)

    await fetched(1)
    await authorizer.identify(provider.bearer())
    assert provider.requests == 1
    clock.goes_on(jwks.REFRESH_SECONDS)
    await fetched(2)
    # A failing provider gets requests less and less often.
    provider.mode = "error"
    clock.goes_on(jwks.REFRESH_SECONDS)
    await fetched(3)
    clock.goes_on(Tunables.key_pause_seconds)
    await fetched(4)
    clock.goes_on(Tunables.key_pause_seconds)
    assert not keys_of(authorizer, provider).due
    clock.goes_on(Tunables.key_pause_seconds)
    await fetched(5)
    tending.cancel()
    await authorizer.close()


def stranger(provider: Issuer, number: int) -> bytes:
    claims = provider.claims(iat=int(time.time()) - 60)  # before keys were fetched, in whatever second that was
    token = jwt.encode(claims, rsa_key("attacker"), "RS256", headers={"kid": f"k{number}"})
    return f"Bearer {token}".encode()


async def test_invented_keys_do_not_make_the_proxy_fetch_again_and_again(provider: Issuer, clock: Clock) -> None:
    authorizer = gate_for(provider, clock)
    fetches = []
    for n in range(50):
        assert await kind_of(authorizer, stranger(provider, n)) is ProblemType.UNAUTHENTICATED
        clock.goes_on(1)
        fetches.append(provider.requests)
    assert fetches[9] == 1
    assert provider.requests == 5


async def test_a_key_newer_than_the_last_fetch_makes_the_call_busy(provider: Issuer, clock: Clock) -> None:
    """Keys were fetched a moment ago and then rotated, so the token may be valid, as the next fetch will show."""
    authorizer = gate_for(provider, clock)
    await authorizer.identify(provider.bearer())
    clock.goes_on(3)
    provider.keys = {"second": rsa_key("second")}
    fresh = provider.bearer(iat=int(clock.wall()))
    problem = await problem_of(authorizer, fresh)
    assert problem.type is ProblemType.BUSY
    assert problem.retry_after == pytest.approx(Tunables.key_pause_seconds - 3)
    clock.goes_on(Tunables.key_pause_seconds - 3)
    assert await authorizer.identify(fresh)


async def test_a_token_without_a_key_name_needs_a_single_key(provider: Issuer) -> None:
    token = jwt.encode(provider.claims(), rsa_key("first"), "RS256")
    assert await gate_for(provider).identify(f"Bearer {token}".encode())
    provider.keys = {"first": rsa_key("first"), "second": rsa_key("second")}
    assert await kind_of(gate_for(provider), f"Bearer {token}".encode()) is ProblemType.UNAUTHENTICATED
    provider.keys = {"first": rsa_key("first"), "other": ec.generate_private_key(ec.SECP256R1())}
    assert await gate_for(provider).identify(f"Bearer {token}".encode())


async def test_a_failure_is_logged_once_and_without_credentials(
    provider: Issuer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tidegate_proxy")
    provider.mode = "error"
    authorizer = gate_for(provider, clock)
    for _ in range(5):
        assert await kind_of(authorizer, provider.bearer()) is ProblemType.BUSY
        clock.goes_on(Tunables.key_pause_seconds)
    assert [each.levelname for each in caplog.records if each.levelno > logging.INFO] == ["WARNING"]
    assert "status 500" in caplog.text
    assert "eyJ" not in caplog.text


def test_keys_of_no_use_are_left_out() -> None:
    first, good = rsa_key("first"), public_jwk(rsa_key("second"), kid="good")
    useless: list[dict[str, Any]] = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"},
        public_jwk(rsa_key("small", 1024), kid="k"),
        public_jwk(first, kid="k", use="enc"),
        public_jwk(first, kid="k", alg="RSA-OAEP"),
        public_jwk(first, kid="k", alg="PS256"),
        public_jwk(first, kid="k", key_ops=["encrypt"]),
        RSAAlgorithm.to_jwk(first, as_dict=True) | {"kid": "k", "key_ops": ["verify"]},
        public_jwk(first, kid=7),
        public_jwk(ec.generate_private_key(ec.SECP384R1()), kid="k", kty="EC"),
        public_jwk(ec.generate_private_key(ec.SECP256K1()), kid="k", kty="EC"),
        public_jwk(ed25519.Ed25519PrivateKey.generate(), kid="k") | {"crv": "X25519"},
        {"kty": "RSA", "kid": "k"},
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": ["RSA"]},
        {},
    ]
    for jwk in useless:
        assert [key.key_id for key in read_keys({"keys": [jwk, "no key", None, good]})] == ["good"], jwk
        with pytest.raises(TokenError):
            read_keys({"keys": [jwk]})


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["kty", "crv", "n", "e", "x", "y", "kid", "alg", "use", "key_ops"]),
        st.none() | st.integers() | st.text(max_size=9) | st.lists(st.text(max_size=3), max_size=2)
        | st.sampled_from(["RSA", "EC", "OKP", "P-256", "Ed25519", "AQAB", "sig"]),
    )
)  # fmt: skip
def test_any_published_key_set_is_read_or_ignored(jwk: dict[str, Any]) -> None:
    good = public_jwk(rsa_key("second"), kid="good")
    assert read_keys({"keys": [good, jwk]})[0].key_id == "good"


async def test_an_empty_set_does_not_take_the_keys_away(provider: Issuer, clock: Clock) -> None:
    """No one withdraws all keys on purpose, so that is a failure, and the known keys stay trusted for their time."""
    keys = keys_of(gate_for(provider, clock), provider)
    await keys.refresh()
    provider.mode = "empty"
    await keys.refresh()
    assert keys.failures == 1
    assert keys.known("first", "RS256") is not None
