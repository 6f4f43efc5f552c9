"""Domino's word on who callers are."""

import asyncio
import time

import pytest
from tidegate_proxy.access import web_client as domino_module
from tidegate_proxy.access.authorizer import Authorizer
from tidegate_proxy.problems import ProblemType

from .provider import DominoFake, Provider
from .tables import Clock, access, gate, issuer_of, kind_of, problem_of, rule

pytestmark = pytest.mark.anyio
ANYBODY = rule(principals=("*",))
KEY = b"x-domino-api-key 0123456789abcdef"
BEARER = b"Bearer opaque-token"


def gate_for(domino: DominoFake, clock: Clock | None = None, **more: float) -> Authorizer:
    domino.known = {
        ("X-Domino-Api-Key", "0123456789abcdef"): {"canonicalName": "alice", "canonicalId": "5f"},
        ("Authorization", "Bearer opaque-token"): {"canonicalName": "bob"},
    }
    return gate(access(ANYBODY), clock, domino_principal_url=domino.url, **more)


async def test_dominos_word_is_taken_for_its_keys_and_tokens(domino: DominoFake) -> None:
    authorizer = gate_for(domino)
    assert (await authorizer.identify(KEY)).principal.name == "alice"
    assert (await authorizer.identify(BEARER)).principal.name == "bob"
    assert (await authorizer.identify(BEARER)).principal.source == "domino"
    assert domino.asked == 2


@pytest.mark.parametrize(
    ("mode", "kind"),
    [(mode, ProblemType.UNAUTHENTICATED) for mode in ("well", "forbidden", "silent")]
    + [(mode, ProblemType.BUSY) for mode in ("error", "slow", "redirect", "nameless")],
)
async def test_whatever_does_not_plainly_name_somebody_lets_nobody_in(
    domino: DominoFake, mode: str, kind: ProblemType
) -> None:
    """An anonymous 200 (of a Domino that works well) is a refusal, too."""
    domino.mode = mode
    credential = b"x-domino-api-key wrong" if mode == "well" else KEY
    problem = await problem_of(gate_for(domino, seconds=0.2), credential)
    assert problem.type is kind
    assert bool(problem.retry_after) == (kind is ProblemType.BUSY)
    assert "wrong" not in problem.detail


async def test_its_word_holds_for_a_bounded_time(domino: DominoFake, clock: Clock) -> None:
    authorizer = gate_for(domino, clock)
    grant = await authorizer.ask(KEY, None, "a", "infer")
    clock.goes_on(domino_module.HOLD_SECONDS - 1)
    assert authorizer.known(KEY, None, "a", "infer") is grant
    clock.goes_on(1)
    assert authorizer.known(KEY, None, "a", "infer") is None
    domino.known.clear()
    assert await kind_of(authorizer, KEY) is ProblemType.UNAUTHENTICATED


async def test_a_flood_of_credentials_is_no_flood_of_questions(
    domino: DominoFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domino_module, "MOST_WAITING", 40)
    domino.mode = "late"
    authorizer = gate_for(domino)
    kinds = await asyncio.gather(*(kind_of(authorizer, b"x-domino-api-key k%d" % n) for n in range(100)))
    assert kinds.count(ProblemType.BUSY) == 60
    assert domino.asked == 40
    assert domino.most_at_once <= domino_module.MOST_AT_ONCE


async def test_a_refused_credential_is_refused_unasked_for_a_moment(domino: DominoFake, clock: Clock) -> None:
    authorizer = gate_for(domino, clock)
    for _ in range(20):
        assert await kind_of(authorizer, b"x-domino-api-key wrong") is ProblemType.UNAUTHENTICATED
    assert domino.asked == 1
    clock.goes_on(6)
    assert await kind_of(authorizer, b"x-domino-api-key wrong") is ProblemType.UNAUTHENTICATED
    assert domino.asked == 2


async def test_a_token_of_a_known_issuer_is_never_sent_on(provider: Provider, domino: DominoFake) -> None:
    """What our own check refuses, nobody else may believe."""
    authorizer = gate(access(ANYBODY, issuers=[issuer_of(provider)]), domino_principal_url=domino.url)
    credential = provider.bearer(aud="others")
    domino.known = {("Authorization", credential.decode()): {"canonicalName": "alice"}}
    assert await kind_of(authorizer, credential) is ProblemType.UNAUTHENTICATED
    assert domino.asked == 0


async def test_a_token_that_says_its_end_ends_then(provider: Provider, domino: DominoFake) -> None:
    authorizer = gate(access(ANYBODY), domino_principal_url=domino.url)
    ends = int(time.time()) + 20
    soon, ended = provider.bearer(exp=ends), provider.bearer(exp=ends - 60)
    domino.known = {("Authorization", each.decode()): {"canonicalName": "alice"} for each in (soon, ended)}
    assert (await authorizer.identify(soon)).expires == ends
    assert await kind_of(authorizer, ended) is ProblemType.UNAUTHENTICATED
