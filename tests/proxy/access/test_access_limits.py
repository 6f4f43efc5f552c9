"""Rate limits: the share of a replica, and how many buckets there can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.routing import RateLimit
from tidegate_proxy.access.limits import RateLimiter, TokenBucket


def limit(a_minute: int = 600, burst: int = 10) -> RateLimit:
    return RateLimit(requests_per_minute=a_minute, burst=burst)


def key(name: str = "alice", model: str = "a") -> tuple[str, str, str, str]:
    return ("issuer", name, "main", model)


def taken(bucket: TokenBucket, now: float) -> int:
    """How many requests pass at a moment."""
    return next(n for n in range(10**6) if bucket.take(now))


def test_a_burst_passes_and_then_the_rate_counts() -> None:
    bucket = RateLimiter(limit()).bucket(key(), 0.0)
    assert taken(bucket, 0.0) == 10
    assert bucket.take(0.0) == pytest.approx(0.1)
    assert taken(bucket, 0.35) == 3
    assert taken(bucket, 1000.0) == 10


def test_each_principal_and_model_has_its_own() -> None:
    limits = RateLimiter(limit())
    mine = limits.bucket(key(), 0.0)
    taken(mine, 0.0)
    assert limits.bucket(key(), 0.0) is mine
    assert taken(limits.bucket(key(model="b"), 0.0), 0.0) == 10
    assert taken(limits.bucket(key("bob"), 0.0), 0.0) == 10


@pytest.mark.parametrize(
    ("replicas", "burst", "rate"), [(1, 10, 10), (2, 5, 5), (4, 2.5, 2.5), (40, 1, 0.25), (0, 10, 10)]
)
def test_a_replica_enforces_its_share(replicas: int, burst: float, rate: float) -> None:
    bucket = RateLimiter(limit(), replicas).bucket(key(), 0.0)
    assert (bucket.burst, bucket.rate) == (burst, rate)
    assert taken(bucket, 0.0) == int(burst)


def test_live_buckets_follow_the_number_of_replicas() -> None:
    limits = RateLimiter(limit())
    full, half = limits.bucket(key(), 0.0), limits.bucket(key("bob"), 0.0)
    for _ in range(5):
        half.take(0.0)
    limits.change(limit(), 2)
    assert (limits.bucket(key(), 0.0), limits.bucket(key("bob"), 0.0)) == (full, half)
    assert taken(full, 0.0) == 5
    assert taken(half, 0.0) == 2
    limits.change(limit(), 1)
    limits.forget_idle(0.0, 100)
    assert (full.rate, full.burst) == (10, 10)
    assert taken(full, 0.0) == 0
    assert taken(full, 0.1) == 1


@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 8)), max_size=200))
def test_however_replicas_change_no_more_passes_than_rate_and_burst(steps: list[tuple[float, int]]) -> None:
    """Of one replica's share, which is never more than all of it."""
    limits = RateLimiter(limit())
    bucket = limits.bucket(key(), 0.0)
    now, passed = 0.0, 0
    for seconds, replicas in steps:
        now += seconds
        limits.change(limit(), replicas)
        assert limits.bucket(key(), now) is bucket
        passed += taken(bucket, now)
    assert passed <= 10 + now * 10 + 1e-6


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_clock_that_goes_back_gives_nothing_away(times: list[float]) -> None:
    bucket = TokenBucket(1.0, 1.0, 50.0)
    passed = sum(not bucket.take(now) for now in times)
    assert passed <= 1 + max(0.0, max(times, default=50.0) - 50.0) + 1e-6


def test_a_full_bucket_is_forgotten_when_nobody_has_it() -> None:
    limits = RateLimiter(limit())
    held = limits.bucket(key(), 0.0)
    limits.bucket(key("bob"), 0.0)
    limits.bucket(key("eve"), 0.0).take(0.0)
    limits.forget_idle(0.0, 100)
    assert len(limits) == 2
    assert limits.bucket(key(), 0.0) is held
    limits.forget_idle(10.0, 100)
    assert len(limits) == 1
    del held
    limits.forget_idle(10.0, 100)
    assert len(limits) == 0


def test_there_are_never_more_than_bounded() -> None:
    limits = RateLimiter(limit(), most=100)
    for n in range(1000):
        bucket = limits.bucket(key(f"p{n}"), 0.0)
        assert bucket.take(0.0) == 0
        assert len(limits) <= 100
    # Full ones give way to new ones before those that count something.
    limits = RateLimiter(limit(), most=100)
    counting = [limits.bucket(key(f"c{n}"), 0.0) for n in range(10)]
    for bucket in counting:
        taken(bucket, 0.0)
    for n in range(500):
        limits.bucket(key(f"p{n}"), 0.0)
    assert [limits.bucket(key(f"c{n}"), 0.0) for n in range(10)] == counting
