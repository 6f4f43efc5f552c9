"""Advisories: those that are alike are said once."""

from collections.abc import Iterable

from stacks.problems import Problem, in_order

MOST = 6
"""Places that a collapsed advisory names."""


def advisory_text(advisories: Iterable[Problem]) -> str:
    """Return a paragraph for each kind of advisory; those with the same reason and remedy are of one kind."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in in_order(advisories):
        kinds.setdefault((problem.why, problem.do), []).append(problem)
    return "\n".join(str(alike[0]) if len(alike) == 1 else _collapsed(alike) for alike in kinds.values())


def _collapsed(alike: list[Problem]) -> str:
    first, *lines = str(alike[0]).split("\n")
    rest = [str(problem).split("\n", 1)[0] for problem in alike[1:MOST]]
    more = [f"… and {len(alike) - MOST} more like these"] if len(alike) > MOST else []
    return "\n".join([first, *rest, *more, *lines])
