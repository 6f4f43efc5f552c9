"""What the records tell: which version an environment has, had before, and for how long."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from ..errors import NotFoundError
from ..registry.version import Record
from .context import Context

What = Literal["deploy", "promote", "rollback"]
BRINGS: Final = get_args(What)
"""Kinds of records after which an environment has their version."""


def history(context: Context, model: str, environment: str | None = None) -> Sequence[Record]:
    """Return the records of a model, the newest first; of one environment if it is said. Raises TidegateError."""
    if environment is not None:
        context.environment(environment)
    records = context.records(model)
    if not records:
        raise NotFoundError(f"nothing is written down of {model}", do=f"tidegate register <folder of {model}>")
    kept = [each for each in records if environment in (None, each.environment)]
    return sorted(kept, key=lambda each: each.when, reverse=True)


def of_environment(records: Iterable[Record], environment: str, plane: str | None = None) -> list[Record]:
    """Return the records that changed what the environment has, oldest first; on one data plane where it is said."""
    found = [each for each in records if each.environment == environment and each.what in BRINGS]
    return sorted((each for each in found if plane in (None, each.plane)), key=lambda each: each.when)


def current(records: Iterable[Record], environment: str, plane: str | None = None) -> int | None:
    """Return the version that the environment had last."""
    changes = of_environment(records, environment, plane)
    return changes[-1].version if changes else None


def before(records: Iterable[Record], environment: str, number: int) -> int | None:
    """Return the version that a rollback from `number` goes to: what was there when `number` was brought in.

    What a rollback itself left is not gone back to: two of them go back two versions.
    """
    for each in reversed(of_environment(records, environment)):
        if each.version == number and each.what in ("deploy", "promote"):
            return each.previous
    return None


def served_hours(records: Sequence[Record], environment: str, number: int, now: datetime) -> float:
    """Return for how many hours the environment has had the version, all times together.

    Of several data planes that have had it, it is the one with the fewest: every one of them has served for so long.
    """
    planes = {each.plane for each in of_environment(records, environment) if each.version == number}
    return min((_hours(of_environment(records, environment, plane), number, now) for plane in planes), default=0.0)


def _hours(changes: Sequence[Record], number: int, now: datetime) -> float:
    total = timedelta()
    ends = [each.when for each in changes[1:]] + [now]
    for change, end in zip(changes, ends, strict=True):
        if change.version == number:
            total += max(end - change.when, timedelta())  # a record from a clock that goes ahead counts nothing
    return total / timedelta(hours=1)
