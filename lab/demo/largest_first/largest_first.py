"""The eviction policy `largest-first`."""

from collections.abc import Sequence

from tidegate_eviction.policies import Candidate, Policy, take


def choose(candidates: Sequence[Candidate], needed_bytes: int, _now: float) -> list[Candidate]:
    """Return the largest models."""
    return take(sorted(candidates, key=lambda model: (-model.bytes, model.last_use)), needed_bytes)


policy = Policy("largest-first", "The largest go first.", choose)
