"""Rate limits: how many requests a principal may send to a model, and how many tokens these may use."""

import weakref
from collections import OrderedDict

MOST_BUCKETS = 131_072  # Buckets that are kept; beyond, the one longest untouched is forgotten, full or not.
TOKENS = "tokens"  # Reason of the problem of those whose tokens are used.
MOST_OWED_SECONDS = 3600.0  # For so long an answer may shut its caller out: what an engine tells may be nonsense.
_LOOKED_AT = 64  # Buckets that are looked at, to make room for one.
_Key = tuple[str, str, str, str]


class TokenBucket:
    """A token bucket (leaky bucket as a meter, ITU-T I.371): `burst` requests at once, then `rate` a second.

    What is known afterwards only, as the tokens of an answer are, is `spent`, and may be more than there is.
    """

    __slots__ = ("__weakref__", "_at", "_left", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float, number: int = 1) -> float:
        """Take one request; return 0, or the seconds until there is room for it. `now` is monotonic seconds.

        With 0 it is only looked whether there is any room.
        """
        left = self._left
        if now > self._at:  # the loop's clock may be a little behind the one that made the bucket
            left += (now - self._at) * self.rate
            self._at = now
            if left > self.burst:
                left = self.burst
        if left >= 1:
            self._left = left - number
            return 0.0
        self._left = left
        return (1 - left) / self.rate

    def spend(self, number: int) -> None:
        """Count what has been used already; no more is owed than comes back within `MOST_OWED_SECONDS`."""
        self._left = max(self._left - number, min(self._left, -MOST_OWED_SECONDS * self.rate))

    def full(self, now: float) -> bool:
        """Tell whether it is as good as a new one."""
        return self._left + (now - self._at) * self.rate >= self.burst

    def rescale(self, rate: float, burst: float, now: float) -> None:
        """Go on at another rate, as full in proportion as it is now."""
        left = min(self.burst, self._left + max(0.0, now - self._at) * self.rate)
        self._left = left * burst / self.burst
        self._at = max(now, self._at)
        self.rate = rate
        self.burst = burst


class RateLimiter:
    """The buckets of all principals and models: this replica's share of what all replicas allow together."""

    def __init__(self, per_minute: float = 1, burst: float = 1, replicas: int = 1, most: int = MOST_BUCKETS) -> None:
        self._buckets: OrderedDict[_Key, TokenBucket] = OrderedDict()
        self._most = most
        self.change(per_minute, burst, replicas)

    def bucket(self, key: _Key, now: float) -> TokenBucket:
        """Return the bucket of a principal (its source, and name) and a model (server, and name)."""
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= self._most:
                self.forget_idle(now, _LOOKED_AT)
            if len(self._buckets) >= self._most:
                self._buckets.popitem(last=False)
            bucket = self._buckets[key] = TokenBucket(self._rate, self._burst, now)
        self._rescale(bucket, now)
        return bucket

    def change(self, per_minute: float, burst: float, replicas: int) -> None:
        """Go on with another limit, or as one of another number of replicas.

        A bucket follows when it is next asked for or looked at: a hundred thousand at once would stall requests.
        """
        replicas = max(1, replicas)
        self._rate = per_minute / 60 / replicas
        self._burst = max(1.0, burst / replicas)

    def forget_idle(self, now: float, most: int) -> None:
        """Look at some buckets, and forget those that are full and in nobody's hand: nothing is lost with them."""
        buckets = self._buckets
        for _ in range(min(most, len(buckets))):
            key, bucket = buckets.popitem(last=False)
            self._rescale(bucket, now)
            if bucket.full(now):
                kept = weakref.ref(bucket)
                del bucket
                if (held := kept()) is not None:
                    buckets[key] = held  # a grant has it: another one beside it would double the limit
            else:
                buckets[key] = bucket

    def _rescale(self, bucket: TokenBucket, now: float) -> None:
        if bucket.rate != self._rate or bucket.burst != self._burst:
            bucket.rescale(self._rate, self._burst, now)
