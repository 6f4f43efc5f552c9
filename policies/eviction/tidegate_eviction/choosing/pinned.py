"""Nothing goes: what is loaded stays."""

from collections.abc import Sequence

from .policy import Candidate, Policy


def choose(_candidates: Sequence[Candidate], _needed_bytes: int, _now: float) -> tuple[Candidate, ...]:
    """Choose nobody."""
    return ()


PINNED = Policy(
    name="pinned",
    sentence="Nothing goes to make room: models are loaded when they are first called, and stay.",
    choose=choose,
    evicts=False,
)
