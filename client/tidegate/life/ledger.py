"""What the registry is told: the environment's alias, tags of the version, and the records, which come last."""

from collections.abc import Sequence
from datetime import timedelta

from tidegate_contracts.environments import Environment

from ..errors import BusyError
from ..registry import Record, RegisteredVersion
from .context import Context
from .past import What, current
from .plan import Plan


def check_alias(context: Context, version: RegisteredVersion, of: Environment, expected: int | None) -> None:
    """Raise BusyError when somebody has moved the environment's alias since it was looked at first."""
    if (now := context.registry.alias(version.model, of.name)) != expected:
        raise BusyError(
            f"the alias {of.name} of {version.model} was moved from {_words(expected)} to {_words(now)} meanwhile",
            where=context.registry.where,
            do="find out who did it (`tidegate history`), and run the same command again if it is still wanted",
        )


def is_written(of: Environment, number: int, records: Sequence[Record], plans: Sequence[Plan]) -> bool:
    """Tell whether the records have the version on every data plane: whoever brought it came to the end of his way."""
    return all(current(records, of.name, use.home.plane.name) == number for plan in plans for use in plan.place.uses)


def write_down(
    context: Context,
    what: What,
    version: RegisteredVersion,
    of: Environment,
    who: str,
    records: Sequence[Record],
    plans: Sequence[Plan],
    expected: int | None,
    source: str | None,
) -> int | None:
    """Move the registry's alias, tag the version, append the records that are not there yet.

    Returns the version that the environment had; the same one where nothing was left to write. The records
    come last: as long as one is missing, the next run knows that this one did not come to its end.
    """
    registry, model, number = context.registry, version.model, version.number
    if expected != number:
        registry.set_alias(model, of.name, number, expect=expected)
    previous: int | None = number
    latest = max((each.when for each in records), default=None)
    for plan in plans:
        for use in plan.place.uses:
            plane = use.home.plane
            had = current(records, of.name, plane.name)
            if had == number:
                continue
            previous = had if had is not None else plan.old if plan.old != number else None
            when = context.now()
            if latest is not None and when <= latest:  # by a clock that went ahead: the order is that of the lock
                when = latest + timedelta(microseconds=1)
            latest = when
            for key, value in (("by", who), ("at", when.isoformat(timespec="seconds")), ("from", source or "registry")):
                registry.tag(version, f"tidegate.{of.name}.{key}", value)
            record = Record(
                what=what,
                model=model,
                version=number,
                who=who,
                when=when,
                previous=previous,
                environment=of.name,
                plane=plane.name,
                source=source,
                manifest_sha256=version.manifest_sha256,
                proxy=plane.proxy_url,
            )
            registry.append_record(version, record)
    return previous


def _words(number: int | None) -> str:
    return "no version" if number is None else f"version {number}"
