"""Checks rendered stacks against the guardrails, before anything is written or applied."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

from policies.guardrails import Finding, check
from policies.guardrails.checking import report, summary
from stacks.command import CommandError

from .render import Rendered

MOST = 6  # Lines of one warning.


def findings(rendering: Iterable[Rendered]) -> dict[str, list[Finding]]:
    """Return the guardrail findings of each rendered stack."""
    return {item.stack: check(item.objects, today()) for item in rendering}


def today() -> date:
    """Return the day in UTC, so that a waiver ends everywhere at the same time."""
    return datetime.now(UTC).date()


def enforce(found: Mapping[str, Sequence[Finding]], outcome: str = "nothing was written") -> str:
    """Return a report of warnings and waivers. Raise CommandError with every finding if one is mandatory."""
    if any(each.severity == "mandatory" for of_stack in found.values() for each in of_stack):
        where = "docs/guardrails.md explains the rules, and how to waive one"
        raise CommandError(f"{report(found)}\n{summary(found)}; {outcome}. {where}.")
    return report(found, MOST)
