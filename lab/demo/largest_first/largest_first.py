"""The eviction policy `largest-first`."""

from collections.abc import Sequence

from pydantic import NonNegativeFloat
from tidegate_eviction.policies import Candidate, Policy, take


def policy(spare_seconds: NonNegativeFloat = 60) -> Policy:
    """Return the policy; models that were used within so many seconds go last."""

    def choose(candidates: Sequence[Candidate], needed_bytes: int, now: float) -> list[Candidate]:
        order = sorted(candidates, key=lambda model: (now - model.last_use < spare_seconds, -model.bytes))
        return take(order, needed_bytes)

    return Policy("largest-first", "The largest go first; those used lately go last.", choose)
