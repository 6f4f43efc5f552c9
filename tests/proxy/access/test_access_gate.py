import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_contracts.routing import AccessRule, AccessTable
from tidegate_proxy.access import identity as caches
from tidegate_proxy.access.api_keys import ApiKeys, hash_line, new_key
from tidegate_proxy.access.authorizer import Authorizer
from tidegate_proxy.access.identity import Grant, Identity, IdentityCache, Principal, RefusalCache
from tidegate_proxy.access.trust import Trust
from tidegate_proxy.problems import Problem, ProblemType
from tidegate_proxy.routes import Routes

from ..rigs.issuer import AUDIENCE, Issuer
from .tables import Clock, access, gate, gate_for, issuer_of, kind_of, problem_of, routes, rule

pytestmark = pytest.mark.anyio
KEYS = {name: new_key() for name in ("alice", "bob")}
ALICE, BOB = (f"x-api-key {KEYS[name]}".encode() for name in ("alice", "bob"))
API_KEYS: ApiKeys = {hash_line(key): name for name, key in KEYS.items()}


def gate_of(*rules: AccessRule, clock: Clock | None = None, **more: Any) -> Authorizer:
    return gate(access(*rules), clock, keys=API_KEYS, **more)


# ---- decisions ----


async def test_a_hidden_model_looks_like_a_missing_one() -> None:
    authorizer = gate_of(rule(principals=("alice",), models=("a",)))
    for server in (None, "main", "nowhere"):
        for action in ("infer", "inspect"):
            denied = await problem_of(authorizer, ALICE, "b", server=server, action=action)
            absent = await problem_of(authorizer, ALICE, "x", server=server, action=action)
            assert denied.type is absent.type is ProblemType.UNKNOWN
            assert denied.body("1") == absent.body("1").replace(b"model x", b"model b")
            assert denied.headers() == absent.headers()


async def test_a_caller_that_may_inspect_but_not_infer_learns_which_rule_is_missing() -> None:
    authorizer = gate_of(rule(principals=("alice",), actions=("inspect",)))
    problem = await problem_of(authorizer, ALICE, "a")
    assert problem.type is ProblemType.DENIED
    assert problem.detail == (
        "alice may inspect the model a of the server main, but not infer. An admin must add an access rule with the "
        "action infer for this principal or one of its groups."
    )
    assert (await authorizer.ask(ALICE, None, "a", "inspect")).bucket is None
    caller = gate_of(rule(principals=("alice",), actions=("infer",)))
    assert (await caller.ask(ALICE, None, "a", "infer")).bucket is not None
    assert await kind_of(caller, ALICE, "a", action="inspect") is ProblemType.DENIED


async def test_a_model_of_several_servers_that_a_caller_may_use_needs_the_servers_name() -> None:
    authorizer = gate_of(
        rule(principals=("alice",), servers=("main",)),
        rule(principals=("bob",), servers=("main", "third")),
        where=routes("main/b", "other/b", "third/b"),
    )
    assert (await authorizer.ask(ALICE, None, "b", "infer")).route.server == "main"
    problem = await problem_of(authorizer, BOB, "b")
    assert problem.type is ProblemType.MALFORMED
    assert "name one of main, third" in problem.detail
    assert "other" not in problem.detail
    assert (await authorizer.ask(BOB, "third", "b", "infer")).route.server == "third"


async def test_one_principal_with_two_credentials_has_one_limit(provider: Issuer) -> None:
    authorizer = gate(access(rule(principals=("alice",)), issuers=[issuer_of(provider)]), keys=API_KEYS)
    first, second = provider.bearer(), provider.bearer(jti="2")
    grants = [await authorizer.ask(each, None, "a", "infer") for each in (first, second)]
    assert grants[0].identity is not grants[1].identity
    assert grants[0].bucket is grants[1].bucket
    other = await authorizer.ask(provider.bearer(sub="alice", aud=["x", AUDIENCE]), "main", "b", "infer")
    by_key = await authorizer.ask(ALICE, None, "a", "infer")  # of the same name, but from another source
    assert grants[0].bucket not in (other.bucket, by_key.bucket)


async def test_limits_on_tokens_follow_the_replicas_if_servers_report_usage() -> None:
    allowed = access(rule(principals=("*",)))
    limit = allowed.rate_limit.model_copy(update={"tokens_per_minute": 600})
    allowed = allowed.model_copy(update={"rate_limit": limit})
    authorizer = gate(allowed, keys=API_KEYS)
    assert (await authorizer.ask(ALICE, None, "a", "infer")).tokens is None
    authorizer.replace(allowed, routes("main/a", kind="openai"), API_KEYS)
    bucket = (await authorizer.ask(ALICE, None, "a", "infer")).tokens
    assert bucket is not None
    assert (bucket.rate, bucket.burst) == (10, 600)
    authorizer.set_replicas(5)
    assert (await authorizer.ask(ALICE, None, "a", "infer")).tokens is bucket
    assert (bucket.rate, bucket.burst) == (2, 120)
    assert (await authorizer.ask(ALICE, None, "a", "inspect")).tokens is None


async def test_limits_follow_the_replicas() -> None:
    authorizer = gate_of(rule(principals=("*",)))
    bucket = (await authorizer.ask(ALICE, None, "a", "infer")).bucket
    assert bucket is not None
    authorizer.set_replicas(5)
    assert authorizer.known(ALICE, (None, "a", "infer", None)) is None
    assert (await authorizer.ask(ALICE, None, "a", "infer")).bucket is bucket
    assert (bucket.rate, bucket.burst) == (2, 2)
    authorizer.replace(access(rule(principals=("*",)), a_minute=3000, burst=100), authorizer._routes, API_KEYS)
    assert (await authorizer.ask(ALICE, None, "a", "infer")).bucket is bucket
    assert (bucket.rate, bucket.burst) == (10, 20)


# ---- reloads ----


async def test_a_reload_keeps_callers_authenticated_whose_source_is_unchanged(provider: Issuer) -> None:
    table = access(rule(principals=("*",)), issuers=[issuer_of(provider)])
    where = routes("main/a")
    authorizer = gate(table, where=where)
    credential = provider.bearer()
    identity = (await authorizer.ask(credential, None, "a", "infer")).identity
    authorizer.replace(access(rule(principals=("alice",)), issuers=table.issuers), where, API_KEYS)
    assert (await authorizer.ask(credential, None, "a", "infer")).identity is identity
    assert provider.requests == 1


async def test_an_issuer_that_is_taken_away_or_changed_ends_its_tokens_at_once(provider: Issuer) -> None:
    where, anybody = routes("main/a"), rule(principals=("*",))
    authorizer = gate(access(anybody, issuers=[issuer_of(provider)]), where=where)
    credential = provider.bearer()
    await authorizer.ask(credential, None, "a", "infer")
    authorizer.replace(access(anybody, issuers=[issuer_of(provider, audiences=("prod",))]), where, API_KEYS)
    assert await kind_of(authorizer, credential) is ProblemType.UNAUTHENTICATED
    authorizer.replace(access(anybody, issuers=[issuer_of(provider)]), where, API_KEYS)
    await authorizer.ask(credential, None, "a", "infer")
    authorizer.replace(access(anybody), where, API_KEYS)
    assert authorizer.known(credential, (None, "a", "infer", None)) is None
    assert await kind_of(authorizer, credential) is ProblemType.UNAUTHENTICATED


async def test_a_caller_that_waits_while_tables_change_is_judged_by_the_new_ones(provider: Issuer) -> None:
    provider.mode = "late"
    where, anybody = routes("main/a"), rule(principals=("*",))
    authorizer = gate(access(anybody, issuers=[issuer_of(provider)]), where=where)
    asking = asyncio.create_task(kind_of(authorizer, provider.bearer()))
    while not provider.requests:
        await asyncio.sleep(0)
    authorizer.replace(access(anybody), where, API_KEYS)
    assert await asking is ProblemType.UNAUTHENTICATED
    assert len(authorizer.identities.by_tail) == 0


TABLES: list[AccessTable] = [
    access(rule(principals=("alice",))),
    access(rule(principals=("*",), models=("b",), servers=("main",))),
    access(rule(principals=("bob",), actions=("inspect",)), rule(principals=("alice",), models=("a*",))),
]
ROUTES = [routes("main/a", "main/b"), routes("other/a", "main/b", "other/b"), routes("main/b")]
SOME_KEYS: list[ApiKeys] = [API_KEYS, {hash_line(KEYS["bob"]): "bob"}, {}]
questions = st.tuples(
    st.sampled_from([ALICE, BOB, b""]), st.sampled_from([None, "main", "other"]), st.sampled_from("abx"),
    st.sampled_from(["infer", "inspect"]),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["rules", "routes", "keys"]), st.integers(0, 2)) | questions, max_size=40))
def test_memory_never_changes_a_decision(steps: list[Any]) -> None:
    async def outcome(authorizer: Authorizer, question: Any) -> Any:
        try:
            grant = authorizer.known(question[0], (*question[1:], None)) or await authorizer.ask(*question)
        except Problem as problem:
            return problem.type, problem.detail
        return grant.identity.principal, grant.route, grant.bucket is None

    async def play() -> None:
        now = {"rules": 0, "routes": 0, "keys": 0}

        def tables() -> tuple[AccessTable, Routes, ApiKeys]:
            return TABLES[now["rules"]], ROUTES[now["routes"]], SOME_KEYS[now["keys"]]

        authorizer = Authorizer(*tables())
        for step in steps:
            if len(step) == 2:
                now[step[0]] = step[1]
                authorizer.replace(*tables())
            else:
                assert await outcome(authorizer, step) == await outcome(Authorizer(*tables()), step)

    asyncio.run(play())


# ---- bounds ----


def identity(name: str = "alice", expires: float = 1e12) -> Identity:
    return Identity(Principal(name, frozenset(), "issuer"), expires)


def tail(n: int, length: int = 60) -> bytes:
    return b"%0*d" % (length, n)


@pytest.mark.parametrize("bounds", [{"most": 10}, {"most_bytes": 100_000}])
def test_identities_are_bounded_by_number_and_by_bytes_and_the_first_goes_first(bounds: dict[str, int]) -> None:
    identities = IdentityCache(**bounds)
    for n in range(100):
        identities.remember(tail(n, 10_000), identity())
        assert identities.bytes <= 100_000
    assert len(identities.by_tail) == 10
    assert (identities.find(tail(89, 10_000)), identities.find(tail(90, 10_000)) is None) == (None, False)
    for n in range(100):
        identities.forget(tail(n, 10_000)[-caches.TAIL :])
    assert (len(identities.by_tail), identities.bytes) == (0, 0)


def test_grants_are_bounded_for_each_and_for_all() -> None:
    identities = IdentityCache(most_grants=3000)
    route = routes("main/a").find(None, "a")[0]
    for n in range(10):
        who = identity()
        identities.remember(tail(n), who)
        for model in range(2000):
            identities.grant(who, (None, f"m{model}", "infer", None), Grant(who, route, None))
            assert len(who.grants) <= caches.MOST_GRANTS_EACH
            assert identities.grants == sum(len(each.grants) for each in identities.by_tail.values()) <= 3000


async def test_a_credential_is_compared_whole(provider: Issuer) -> None:
    """Its end only finds the entry. The whole must be equal."""
    authorizer = gate_for(provider)
    token = provider.bearer()
    await authorizer.ask(token, None, "a", "infer")
    head, _, rest = token.partition(b".")
    for other in (b"x" + token, token[1:], token[-caches.TAIL :], b"X" + token[1:], head + b"x." + rest, token + b" "):
        assert authorizer.known(other, (None, "a", "infer", None)) is None
        assert authorizer.identities.find(other) is None
    forged = token[:30] + bytes([token[30] ^ 1]) + token[31:]
    assert await kind_of(authorizer, forged) is ProblemType.UNAUTHENTICATED
    assert authorizer.known(token, (None, "a", "infer", None)) is not None


async def test_ended_calls_and_void_grants_are_removed(provider: Issuer, clock: Clock) -> None:
    table, where = access(rule(principals=("*",)), issuers=[issuer_of(provider)]), routes("main/a")
    authorizer = gate(table, clock, where=where)
    soon = provider.bearer(exp=int(clock.wall()) + 10)
    late = provider.bearer()
    for each in (soon, late):
        await authorizer.ask(each, None, "a", "infer")
    authorizer.replace(table, where, API_KEYS)
    assert authorizer.identities.grants == 2
    clock.goes_on(20)
    authorizer.sweep()
    assert len(authorizer.identities.by_tail) == 1
    assert authorizer.identities.grants == len(authorizer.limits._buckets) == 0
    assert authorizer.identities.find(late) is not None
    assert authorizer.identities.bytes == len(late)


async def test_a_flood_of_one_bad_token_is_checked_once_a_while(provider: Issuer, clock: Clock) -> None:
    authorizer = gate_for(provider, clock)
    bad = provider.bearer(aud="others")
    await authorizer.identify(provider.bearer())
    with patch.object(Trust, "believe", autospec=True, side_effect=Trust.believe) as checked:
        details = {(await problem_of(authorizer, bad)).detail for _ in range(100)}
        assert (len(details), checked.call_count) == (1, 1)
        clock.goes_on(caches.REFUSED_SECONDS)
        assert await kind_of(authorizer, bad) is ProblemType.UNAUTHENTICATED
        assert checked.call_count == 2


def test_refusals_are_bounded() -> None:
    refusals = RefusalCache(most=100)
    for n in range(500):
        refusals.add(tail(n), "no", now=0.0)
    assert len(refusals._until) == 100


async def test_a_caller_without_a_credential_is_remembered_nowhere() -> None:
    authorizer = gate_of(rule(principals=("*",)))
    assert await kind_of(authorizer, b"") is ProblemType.UNAUTHENTICATED
    assert (len(authorizer.refusals._until), len(authorizer.identities.by_tail)) == (0, 0)


async def test_no_credential_is_in_text_that_can_be_logged(provider: Issuer) -> None:
    authorizer = gate_for(provider, keys=API_KEYS)
    for credential in (provider.bearer(), ALICE):
        grant = await authorizer.ask(credential, None, "a", "infer")
        assert credential[-20:].decode() not in f"{grant!r}{grant.identity!r}"
