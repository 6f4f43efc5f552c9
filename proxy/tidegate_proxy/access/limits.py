"""Rate limits: how many requests a principal can send to a model, and how many tokens they can use."""

import weakref
from collections import OrderedDict

MOST_BUCKETS = 131_072  # Kept buckets. Beyond, the one unused for longest is dropped, full or not.
TOKENS = "tokens"  # Reason of the problem if the tokens are used up.
MOST_OWED_SECONDS = 3600.0  # Longest time for which one response can block its caller: an engine's count may be wrong.
_SCANNED = 64  # Buckets to look at when one more is needed.
_Key = tuple[str, str, str, str]


class TokenBucket:
    """A token bucket (leaky bucket as a meter, ITU-T I.371): `burst` requests at once, then `rate` a second. Use that
    is known only afterwards, such as the tokens of a response, is `spent` and can exceed what is left."""

    __slots__ = ("__weakref__", "_at", "_left", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float, number: int = 1) -> float:
        """Take one request (or check, with 0). Return 0, or the seconds until the next. `now` is monotonic seconds."""
        left = self._left
        if now > self._at:  # the loop's clock can be slightly behind that of the bucket's creator
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
        """Count past use. The debt is at most what comes back within `MOST_OWED_SECONDS`."""
        self._left = max(self._left - number, min(self._left, -MOST_OWED_SECONDS * self.rate))

    def full(self, now: float) -> bool:
        """Return whether it equals a new bucket."""
        return self._left + (now - self._at) * self.rate >= self.burst

    def rescale(self, rate: float, burst: float, now: float) -> None:
        """Change rate and burst, and keep the proportion that is left."""
        left = min(self.burst, self._left + max(0.0, now - self._at) * self.rate)
        self._left = left * burst / self.burst
        self._at = max(now, self._at)
        self.rate = rate
        self.burst = burst


class RateLimiter:
    """The buckets of all principals and models: this replica's share of the limits of all replicas."""

    def __init__(self, per_minute: float = 1, burst: float = 1, replicas: int = 1, most: int = MOST_BUCKETS) -> None:
        self._buckets: OrderedDict[_Key, TokenBucket] = OrderedDict()
        self._most = most
        self.change(per_minute, burst, replicas)

    def bucket(self, key: _Key, now: float) -> TokenBucket:
        """Return the bucket of a principal (its source, and name) and a model (server, and name)."""
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= self._most:
                self.forget_idle(now, _SCANNED)
            if len(self._buckets) >= self._most:
                self._buckets.popitem(last=False)
            bucket = self._buckets[key] = TokenBucket(self._rate, self._burst, now)
        self._rescale(bucket, now)
        return bucket

    def change(self, per_minute: float, burst: float, replicas: int) -> None:
        """Use another limit, or another number of replicas. A bucket follows when it is next used or looked at:
        updating a hundred thousand at once would stall requests."""
        replicas = max(1, replicas)
        self._rate = per_minute / 60 / replicas
        self._burst = max(1.0, burst / replicas)

    def forget_idle(self, now: float, most: int) -> None:
        """Look at some buckets and drop those that are full and unused: dropping them loses nothing."""
        buckets = self._buckets
        for _ in range(min(most, len(buckets))):
            key, bucket = buckets.popitem(last=False)
            self._rescale(bucket, now)
            if bucket.full(now):
                kept = weakref.ref(bucket)
                del bucket
                if (held := kept()) is not None:
                    buckets[key] = held  # a grant uses it: a second bucket would double the limit
            else:
                buckets[key] = bucket

    def _rescale(self, bucket: TokenBucket, now: float) -> None:
        if bucket.rate != self._rate or bucket.burst != self._burst:
            bucket.rescale(self._rate, self._burst, now)
