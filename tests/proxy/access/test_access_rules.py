import asyncio
from collections.abc import Iterable
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.routing import API_KEYS, DOMINO, AccessRule
from tidegate_proxy.access.identity import Principal
from tidegate_proxy.access.limits import MOST_OWED_SECONDS, RateLimiter, TokenBucket
from tidegate_proxy.access.rules import MOST_RIGHTS, Rules, build_rules

from .tables import rule


def principal(name: str = "alice", *groups: str) -> Principal:
    return Principal(name, frozenset(groups), "issuer")


words = st.text("aAb*?[]!-", min_size=1, max_size=4)
rules = st.builds(
    AccessRule,
    name=st.just("r"),
    principals=st.lists(words, max_size=2).map(tuple),
    groups=st.lists(words, max_size=2).map(tuple),
    actions=st.sampled_from([("infer",), ("inspect",), ("infer", "inspect")]),
    servers=st.lists(words, max_size=2).map(tuple),
    models=st.lists(words, max_size=2).map(tuple),
    source=st.sampled_from([None, API_KEYS, "https://one.example"]),
)
plain = st.text("aAb", min_size=1, max_size=3)
callers = st.builds(
    Principal, plain, st.frozensets(plain, max_size=2), st.sampled_from([API_KEYS, DOMINO, "https://one.example"])
)


@given(st.lists(rules, max_size=6), callers, plain, plain, st.sampled_from(["infer", "inspect"]))
def test_rules_grant_only_models_that_one_of_them_names(
    several: list[AccessRule], who: Principal, server: str, model: str, action: str
) -> None:
    """A rule with a source grants nothing to callers of the same name from another source."""

    def any_match(patterns: tuple[str, ...], values: Iterable[str]) -> bool:
        return any(fnmatchcase(value, pattern) for pattern in patterns for value in values)

    expected = any(
        (any_match(each.principals, {who.name}) or any_match(each.groups, who.groups))
        and each.source in (None, who.source)
        and action in each.actions
        and any_match(each.servers, {server})
        and any_match(each.models, {model})
        for each in several
    )
    compiled = Rules(several)
    for _ in range(2):  # computed, then cached
        assert compiled.of(who).allow(action, server, model) == expected  # type: ignore[arg-type]


def test_principals_of_the_same_rules_share_rights_in_a_bounded_cache() -> None:
    compiled = Rules([rule(groups=("g*",))])
    assert compiled.of(principal("alice", "g1")) is compiled.of(principal("bob", "g2"))
    for n in range(MOST_RIGHTS + 10):
        compiled.of(principal(f"p{n}"))
    assert len(compiled._of) <= MOST_RIGHTS


@pytest.mark.anyio
@pytest.mark.parametrize("number", [1000, 1])
async def test_many_rules_and_many_globs_of_one_are_read_while_other_work_goes_on(number: int) -> None:
    models = [tuple(f"*-{m}-{number}?" for m in range(n, 1000, number)) for n in range(number)]
    several = [rule(name=f"r{n}", principals=(f"p{n}",), models=named) for n, named in enumerate(models)]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    built = await asyncio.to_thread(build_rules, several)
    working.cancel()
    assert turns >= 19
    assert built.of(principal("p0")).allow("infer", "main", f"a-0-{number}b")
    assert built.of(principal("p0")).allow("infer", "main", f"a-8-{number}b") == (number == 1)


LIMIT = 600, 10  # Requests a minute, and burst.


def key(name: str = "alice", model: str = "a") -> tuple[str, str, str, str]:
    return ("issuer", name, "main", model)


def taken(bucket: TokenBucket, now: float) -> int:
    return next(n for n in range(10**6) if bucket.take(now))


@pytest.mark.parametrize(
    ("replicas", "burst", "rate"), [(1, 10, 10), (2, 5, 5), (4, 2.5, 2.5), (40, 1, 0.25), (0, 10, 10)]
)
def test_a_replica_enforces_its_share_for_each_principal_and_model(replicas: int, burst: float, rate: float) -> None:
    limits = RateLimiter(*LIMIT, replicas)
    for each in (key(), key(model="b"), key("bob")):
        bucket = limits.bucket(each, 0.0)
        assert limits.bucket(each, 0.0) is bucket
        assert (bucket.burst, bucket.rate) == (burst, rate)
        assert taken(bucket, 0.0) == int(burst)
        assert bucket.take(0.0) == pytest.approx((1 - burst % 1) / rate)
        assert taken(bucket, 1000.0) == int(burst)


@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 8)), max_size=200))
def test_however_replicas_change_no_more_passes_than_rate_and_burst(steps: list[tuple[float, int]]) -> None:
    """One replica's share is never more than the whole."""
    limits = RateLimiter(*LIMIT)
    bucket = limits.bucket(key(), 0.0)
    now, passed = 0.0, 0
    for seconds, replicas in steps:
        now += seconds
        limits.change(*LIMIT, replicas)
        assert limits.bucket(key(), now) is bucket
        passed += taken(bucket, now)
    assert passed <= 10 + now * 10 + 1e-6


def test_a_full_unused_bucket_is_dropped() -> None:
    limits = RateLimiter(*LIMIT)
    held = limits.bucket(key(), 0.0)
    limits.bucket(key("bob"), 0.0)
    limits.bucket(key("eve"), 0.0).take(0.0)
    limits.forget_idle(0.0, 100)
    assert len(limits._buckets) == 2
    assert limits.bucket(key(), 0.0) is held
    limits.forget_idle(10.0, 100)
    assert len(limits._buckets) == 1
    del held
    limits.forget_idle(10.0, 100)
    assert len(limits._buckets) == 0


def test_there_are_never_more_than_bounded() -> None:
    limits = RateLimiter(*LIMIT, most=100)
    for n in range(1000):
        bucket = limits.bucket(key(f"p{n}"), 0.0)
        assert bucket.take(0.0) == 0
        assert len(limits._buckets) <= 100
    # Full buckets give way to new ones before those that count something.
    limits = RateLimiter(*LIMIT, most=100)
    counting = [limits.bucket(key(f"c{n}"), 0.0) for n in range(10)]
    for bucket in counting:
        taken(bucket, 0.0)
    for n in range(500):
        limits.bucket(key(f"p{n}"), 0.0)
    assert [limits.bucket(key(f"c{n}"), 0.0) for n in range(10)] == counting


@given(st.floats(0.01, 1e4), st.lists(st.integers(0, 10**12), min_size=1, max_size=5))
def test_no_reported_usage_blocks_a_caller_for_longer_than_an_hour(rate: float, usages: list[int]) -> None:
    bucket = TokenBucket(rate, 60 * rate, 0.0)
    for number in usages:
        bucket.spend(number)
    wait = bucket.take(0.0, 0)
    assert wait <= (MOST_OWED_SECONDS + 1 / rate) * (1 + 1e-9)  # floats are rounded
    if sum(usages) < 60 * rate:
        assert wait == pytest.approx(max(0.0, (1 - 60 * rate + sum(usages)) / rate))
