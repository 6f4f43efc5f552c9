"""What the records tell of an environment's past, and who may bring which version into it.

The rules are pure functions; every one returns, or raises RefusedError. They keep honest people from mistakes. What
keeps others out are the permissions of the repository and the registry.
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
BRINGS: Final = get_args(Brings)  # kinds of records after which an environment has their version
CHANGES: Final = get_args(Operation)


def history(context: Context, model: str, environment: str | None = None) -> Sequence[Record]:
    """Return the records of a model, the newest first; of one environment if it is said. Raises TidegateError."""
    if environment is not None:
        context.environment(environment)
    records = context.records(model)
    if not records:
        raise NotFoundError(f"nothing is written down of {model}", do=f"tidegate register <folder of {model}>")
    attempts = context.attempts(model)
    kept = [each for each in [*records, *unsuccessful(attempts, records)] if environment in (None, each.environment)]
    return sorted(kept, key=lambda each: each.when, reverse=True)


def unsuccessful(attempts: Sequence[Record], records: Sequence[Record]) -> Iterator[Record]:
    """Yield the attempts that came to no end: a beginning counts unless its failure or its success was written down."""

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
    """Return the records that changed what the environment has, oldest first; on one data plane where it is said."""
    found = [each for each in records if each.environment == environment and each.what in CHANGES]
    return sorted((each for each in found if plane in (None, each.plane)), key=lambda each: each.when)


def current(records: Iterable[Record], environment: str, plane: str | None = None) -> int | None:
    """Return the version that the environment has; None where it never had one, or it was taken out."""
    changes = of_environment(records, environment, plane)
    return changes[-1].version if changes and changes[-1].what in BRINGS else None


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
    totals = dict.fromkeys(planes, timedelta())
    for plane in planes:
        changes = of_environment(records, environment, plane)
        ends = [each.when for each in changes[1:]] + [now]
        for change, end in zip(changes, ends, strict=True):
            if change.version == number and change.what in BRINGS:
                totals[plane] += max(end - change.when, timedelta())  # a clock that goes ahead counts nothing
    return min(totals.values(), default=timedelta()) / timedelta(hours=1)


def may_publish(environment: str, promotion: Promotion, writers: Sequence[str], who: WhoAmI) -> None:
    """Check that the caller is among those who bring versions in.

    They are the definition's principals and groups; else the writers of the server's repository; else everybody.
    """
    groups = promotion.groups if promotion.groups or promotion.principals else writers
    if not groups and not promotion.principals:
        return
    if who.principal in promotion.principals or set(who.groups) & set(groups):
        return
    allowed = [*(f"group {group}" for group in groups), *promotion.principals]
    belongs = f"in the groups {', '.join(who.groups)}" if who.groups else "in no group"
    why = f"its definition allows {', '.join(allowed)}; {who.source} knows you as {who.principal}, {belongs}"
    do = "ask one of them to run the same command, or the platform admin to add you to `promotion`"
    raise RefusedError(f"{who.principal} may not bring versions into {environment}", why=why, do=do)


def other_than_who_registered(environment: str, number: int, by: str, who: WhoAmI, unproven: str = "") -> None:
    """Check that the caller did not register the version; a name that is unproven may be the caller's."""
    why = f"{environment} wants somebody else to bring a version in than who registered it"
    if not by:
        what = f"it is not known who registered version {number}"
        raise RefusedError(what, why=why, do="register it again with `tidegate register`, which says who did")
    if unproven:
        what = f"it is not proven that {by} registered version {number}"
        do = "have the same entry registered again by somebody whose credential a proxy knows"
        raise RefusedError(what, why=f"{unproven}; {why}", do=do)
    if by.casefold() == who.principal.casefold():
        what = f"{who.principal} registered version {number}, and may not bring it into {environment} too"
        do = "ask somebody else who may to run the same command"
        raise RefusedError(what, why="the definition asks for separation of duties", do=do)


def was_in(source: str, environment: str, number: int, records: Sequence[Record], do: str) -> None:
    """Check that the version has been in the environment that versions come from; `do` is what brings it there."""
    if any(each.version == number for each in of_environment(records, source)):
        return
    what, why = f"version {number} was never in {source}", f"{environment} takes versions that have been in {source}"
    raise RefusedError(what, why=why, do=f"bring it there first: {do}")


def has_soaked(source: str, number: int, hours: float, records: Records, failures: int | None, now: datetime) -> None:
    """Check that it has served in `source` for so many hours, and that no call of it failed there.

    A record that cannot be read may say that it went, so that is refused too. `failures` is what Triton counts of the
    version there since it was loaded; None, which is refused too, where nothing can be learned. An error that a model
    of the Python backend answers to one request is none to Triton 2.51.
    """
    if records.unreadable:
        what = f"it cannot be learned for how long version {number} has served in {source}"
        why = f"{records.unreadable[0]} cannot be read: what was there may have said that the version went"
        raise RefusedError(what, why=why, do="find out who wrote it there, and take it away")
    served = served_hours(records, source, number, now)
    if served < hours:
        what = f"version {number} has served in {source} for {served:.1f} hours of {hours:g}"
        why = "the definition asks for that much before it goes further"
        raise RefusedError(what, why=why, do=f"come again in {hours - served:.1f} hours")
    if failures is None:
        what = f"it cannot be learned whether calls of version {number} failed in {source}"
        do = f"call it there, look with `tidegate status {records[0].model} --environment {source}`, and try again"
        raise RefusedError(what, why="the inference server there tells no statistics of it", do=do)
    if failures:
        what = f"{failures} calls of version {number} failed in {source}"
        do = "find out why in the log of the inference server there; a reload of the model begins the count anew"
        raise RefusedError(what, why="the definition asks for hours without errors", do=do)
