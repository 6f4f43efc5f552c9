"""Reads an environment's past from the records, and has the rules for changing its versions.

The rules are pure functions that return or raise RefusedError. They prevent mistakes, but are not access control: that
is done by the permissions of the repository and the registry.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from tidegate_contracts.environments import Promotion, WhoAmI

from ..errors import NotFoundError, RefusedError
from ..registry.version import Record, Records
from .context import Context

Brings = Literal["deploy", "promote", "rollback"]
Operation = Literal[Brings, "undeploy"]
BRINGS: Final = get_args(Brings)  # operations after which an environment has the version
CHANGES: Final = get_args(Operation)


def history(context: Context, model: str, environment: str | None = None) -> Sequence[Record]:
    """Return the records of a model, the newest first, optionally of one environment. Raises TidegateError."""
    if environment is not None:
        context.environment(environment)
    records = context.records(model)
    if not records:
        raise NotFoundError(f"there are no records of {model}", do=f"tidegate register <directory of {model}>")
    attempts = context.attempts(model)
    kept = [each for each in [*records, *unsuccessful(attempts, records)] if environment in (None, each.environment)]
    return sorted(kept, key=lambda each: each.when, reverse=True)


def unsuccessful(attempts: Sequence[Record], records: Sequence[Record]) -> Iterator[Record]:
    """Yield the failed attempts, and those without a recorded end."""

    def key(each: Record) -> tuple[str, int, str | None]:
        return each.what, each.version, each.environment

    for each in attempts:
        later = sorted(
            (other for other in [*attempts, *records] if key(other) == key(each) and other.when > each.when),
            key=lambda other: other.when,
        )
        if each.ended == "failed" or not later or later[0].ended == "interrupted":
            yield each


def of_environment(records: Iterable[Record], environment: str, plane: str | None = None) -> list[Record]:
    """Return the records that changed an environment, or one data plane of it, oldest first."""
    found = [each for each in records if each.environment == environment and each.what in CHANGES]
    return sorted((each for each in found if plane in (None, each.plane)), key=lambda each: each.when)


def current(records: Iterable[Record], environment: str, plane: str | None = None) -> int | None:
    """Return the version that the environment has, or None if it has none."""
    changes = of_environment(records, environment, plane)
    return changes[-1].version if changes and changes[-1].what in BRINGS else None


def before(records: Iterable[Record], environment: str, number: int) -> int | None:
    """Return the version that a rollback from `number` goes to: the previous one when `number` was brought in. Records
    of rollbacks do not count, so two rollbacks go back two versions."""
    for each in reversed(of_environment(records, environment)):
        if each.version == number and each.what in ("deploy", "promote"):
            return each.previous
    return None


def served_hours(records: Sequence[Record], environment: str, number: int, now: datetime) -> float:
    """Return the hours in which the environment has had the version: the fewest of its data planes."""
    planes = {each.plane for each in of_environment(records, environment) if each.version == number}
    totals = dict.fromkeys(planes, timedelta())
    for plane in planes:
        changes = of_environment(records, environment, plane)
        ends = [each.when for each in changes[1:]] + [now]
        for change, end in zip(changes, ends, strict=True):
            if change.version == number and change.what in BRINGS:
                totals[plane] += max(end - change.when, timedelta())  # 0 if another clock was ahead
    return min(totals.values(), default=timedelta()) / timedelta(hours=1)


def may_publish(environment: str, promotion: Promotion, writers: Sequence[str], who: WhoAmI) -> None:
    """Check that the caller may change the versions in the environment. Allowed are the principals and groups of
    `promotion`, or else the writers of the repository, or else all callers."""
    groups = promotion.groups if promotion.groups or promotion.principals else writers
    if not groups and not promotion.principals:
        return
    if who.principal in promotion.principals or set(who.groups) & set(groups):
        return
    allowed = [*(f"group {group}" for group in groups), *promotion.principals]
    belongs = f"in the groups {', '.join(who.groups)}" if who.groups else "in no group"
    why = f"the definition allows {', '.join(allowed)}. {who.source} identifies you as {who.principal}, {belongs}"
    do = "have one of them run the same command, or have the platform admin add you to `promotion`"
    raise RefusedError(f"{who.principal} may not change versions in {environment}", why=why, do=do)


def other_than_who_registered(environment: str, number: int, by: str, who: WhoAmI, unproven: str = "") -> None:
    """Check that the caller did not register the version. An unproven name could be the caller's."""
    why = f"{environment} requires that one user registers a version and another one deploys or promotes it"
    if not by:
        what = f"it is unknown who registered version {number}"
        raise RefusedError(what, why=why, do="register it again with `tidegate register`, which records the user")
    if unproven:
        what = f"there is no proof that {by} registered version {number}"
        do = "have another user, whose credential a proxy accepts, register the same entry again"
        raise RefusedError(what, why=f"{unproven}. {why}", do=do)
    if by.casefold() == who.principal.casefold():
        what = f"{who.principal} registered version {number}, so may not deploy or promote it to {environment}"
        do = "have another permitted user run the same command"
        raise RefusedError(what, why="the definition requires separation of duties", do=do)


def was_in(source: str, environment: str, number: int, records: Sequence[Record], do: str) -> None:
    """Check that the version was in the source environment. `do` is the command that deploys it there."""
    if any(each.version == number for each in of_environment(records, source)):
        return
    what, why = f"version {number} was never in {source}", f"{environment} accepts only versions that were in {source}"
    raise RefusedError(what, why=why, do=f"deploy it there first: {do}")


def has_soaked(source: str, number: int, hours: float, records: Records, failures: int | None, now: datetime) -> None:
    """Check that the version was served in `source` for so many hours without a failed call.

    An unreadable record may contain its removal, so it is a refusal. `failures` is Triton's count since it loaded the
    version. None means unknown and is a refusal too. Triton 2.51 does not count errors of single requests in the Python
    backend.
    """
    if records.unreadable:
        what = f"it is unknown for how long version {number} was served in {source}"
        why = f"{records.unreadable[0]} cannot be read, and may have contained the version's removal"
        raise RefusedError(what, why=why, do="find out who wrote it there, and remove it")
    served = served_hours(records, source, number, now)
    if served < hours:
        what = f"version {number} was served in {source} for {served:.1f} hours of the required {hours:g}"
        why = "the definition requires this time before promotion"
        raise RefusedError(what, why=why, do=f"try again in {hours - served:.1f} hours")
    if failures is None:
        what = f"it is unknown whether calls of version {number} failed in {source}"
        do = f"call it there, run `tidegate status {records[0].model} --environment {source}`, and try again"
        raise RefusedError(what, why="the inference server there has no statistics of it", do=do)
    if failures:
        what = f"calls of version {number} failed in {source}: {failures}"
        do = "read the log of the inference server there. A reload of the model resets the count"
        raise RefusedError(what, why="the definition requires hours without errors", do=do)
