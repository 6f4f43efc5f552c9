import asyncio
import time

import pytest
from tidegate_proxy.access import web_client as domino_module
from tidegate_proxy.access.authorizer import Authorizer
from tidegate_proxy.access.web_client import SENDER, Turns, UnknownSender
from tidegate_proxy.problems import Problem, ProblemType

from ..rigs.issuer import Issuer
from .provider import DominoFake
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


async def test_domino_is_trusted_for_its_keys_and_tokens(domino: DominoFake) -> None:
    authorizer = gate_for(domino)
    assert (await authorizer.identify(KEY)).principal.name == "alice"
    assert (await authorizer.identify(BEARER)).principal.name == "bob"
    assert (await authorizer.identify(BEARER)).principal.source == "domino"
    assert domino.requests == 2


@pytest.mark.parametrize(
    ("mode", "kind"),
    [(mode, ProblemType.UNAUTHENTICATED) for mode in ("well", "forbidden", "silent")]
    + [(mode, ProblemType.BUSY) for mode in ("error", "slow", "redirect", "nameless")],
)
async def test_a_response_that_does_not_clearly_name_a_caller_is_a_refusal(
    domino: DominoFake, mode: str, kind: ProblemType
) -> None:
    """An anonymous 200 is a refusal, too, although Domino works well."""
    domino.mode = mode
    credential = b"x-domino-api-key wrong" if mode == "well" else KEY
    problem = await problem_of(gate_for(domino, seconds=0.2), credential)
    assert problem.type is kind
    assert bool(problem.retry_after) == (kind is ProblemType.BUSY)
    assert "wrong" not in problem.detail


async def test_dominos_response_is_cached_for_a_limited_time(domino: DominoFake, clock: Clock) -> None:
    authorizer = gate_for(domino, clock)
    grant = await authorizer.ask(KEY, None, "a", "infer")
    clock.goes_on(domino_module.HOLD_SECONDS - 1)
    assert authorizer.known(KEY, (None, "a", "infer", None)) is grant
    clock.goes_on(1)
    assert authorizer.known(KEY, (None, "a", "infer", None)) is None
    domino.known.clear()
    assert await kind_of(authorizer, KEY) is ProblemType.UNAUTHENTICATED


async def test_a_refused_credential_is_refused_for_a_moment_without_a_check(domino: DominoFake, clock: Clock) -> None:
    authorizer = gate_for(domino, clock)
    for _ in range(20):
        assert await kind_of(authorizer, b"x-domino-api-key wrong") is ProblemType.UNAUTHENTICATED
    assert domino.requests == 1
    clock.goes_on(6)
    assert await kind_of(authorizer, b"x-domino-api-key wrong") is ProblemType.UNAUTHENTICATED
    assert domino.requests == 2


async def test_a_token_of_a_known_issuer_is_never_sent_on(provider: Issuer, domino: DominoFake) -> None:
    """No other service may trust a token that our own check refuses."""
    authorizer = gate(access(ANYBODY, issuers=[issuer_of(provider)]), domino_principal_url=domino.url)
    credential = provider.bearer(aud="others")
    domino.known = {("Authorization", credential.decode()): {"canonicalName": "alice"}}
    assert await kind_of(authorizer, credential) is ProblemType.UNAUTHENTICATED
    assert domino.requests == 0


async def test_a_token_with_an_expiry_expires_then(provider: Issuer, domino: DominoFake) -> None:
    authorizer = gate(access(ANYBODY), domino_principal_url=domino.url)
    ends = int(time.time()) + 20
    soon, ended = provider.bearer(exp=ends), provider.bearer(exp=ends - 60)
    domino.known = {("Authorization", each.decode()): {"canonicalName": "alice"} for each in (soon, ended)}
    assert (await authorizer.identify(soon)).expires == ends
    assert await kind_of(authorizer, ended) is ProblemType.UNAUTHENTICATED


def from_link(authorizer: Authorizer, link: UnknownSender, credential: bytes) -> asyncio.Task[ProblemType | None]:
    async def check() -> ProblemType | None:
        SENDER.set(link)
        try:
            await authorizer.identify(credential)
        except Problem as problem:
            return problem.type
        return None

    return asyncio.get_running_loop().create_task(check())


FLOOD = 400


@pytest.mark.parametrize(
    "how", ["from another host", "over a connection without refusals", "with a key that Domino knew before"]
)
async def test_a_flood_of_made_up_credentials_keeps_no_other_caller_out(
    domino: DominoFake, clock: Clock, how: str
) -> None:
    authorizer = gate_for(domino, clock)
    assert authorizer._domino is not None
    authorizer._domino._turns = Turns(64)
    keys = [b"%032x" % number for number in range(66)]
    domino.known = {("X-Domino-Api-Key", key.decode()): {"canonicalName": f"caller-{key!r}"} for key in keys}
    flooder, caller = UnknownSender("10.0.0.1", 3), UnknownSender("10.0.0.2", 3)
    if how == "over a connection without refusals":
        caller = UnknownSender("10.0.0.1")
    elif how == "with a key that Domino knew before":
        caller = flooder
        for key in keys:
            await authorizer.identify(b"x-domino-api-key " + key)
        clock.goes_on(domino_module.HOLD_SECONDS)
    domino.mode = "late"
    flood = [from_link(authorizer, flooder, b"x-domino-api-key made-up-%d" % number) for number in range(FLOOD)]
    await asyncio.sleep(0.01)
    for at in range(0, len(keys), 11):
        found = [from_link(authorizer, caller, b"x-domino-api-key " + key) for key in keys[at : at + 11]]
        more = range(FLOOD * (at + 1), FLOOD * (at + 1) + 100)
        flood += [from_link(authorizer, flooder, b"x-domino-api-key made-up-%d" % number) for number in more]
        assert await asyncio.gather(*found) == [None] * len(found)
    assert ProblemType.BUSY in await asyncio.gather(*flood)
    assert domino.most_at_once <= domino_module.MOST_AT_ONCE


async def test_checks_whose_callers_have_left_keep_their_places_at_domino_and_no_others(
    domino: DominoFake,
) -> None:
    domino.mode = "late"
    authorizer = gate_for(domino)
    await kind_of(authorizer, b"x-domino-api-key first")
    before, requests = len(asyncio.all_tasks()), domino.requests
    for number in range(FLOOD):
        leaving = from_link(authorizer, UnknownSender("10.0.0.1"), b"x-domino-api-key made-up-%d" % number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving.cancel()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) - before <= 3 * domino_module.MOST_AT_ONCE
    assert (await authorizer.identify(KEY)).principal.name == "alice"
    assert domino.most_at_once <= domino_module.MOST_AT_ONCE
    assert domino.requests - requests < FLOOD / 2
