"""Holds what was rendered to the guardrails, before anything is written or applied."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

from policies.guardrails import Finding, check_all
from policies.guardrails.checking import report, summary
from stacks.command import CommandError
from stacks.stack import Definition, Stack

from .render import Rendered, render

MOST = 6  # Lines that an advisory is said in.


def compared_with(names: Iterable[str], definition: Definition) -> list[Stack]:
    """Return the stacks besides those of these names that rules look at with them: production's, or the others."""
    ours = {*names}
    kinds = {stack.environment.production for stack in definition.stacks if stack.name in ours}
    others = (stack for stack in definition.stacks if stack.name not in ours)
    return [stack for stack in others if (not stack.environment.production) in kinds]


def findings(
    rendering: Sequence[Rendered],
    definition: Definition,
    beside: Sequence[Rendered] | None = None,
) -> dict[str, list[Finding]]:
    """Return what is wrong with each rendered stack, and what these stacks make wrong in others of the definition.

    `beside` are those that they are compared with, where they are rendered already.
    """
    day = today()
    ours = {item.stack: item.objects for item in rendering}
    if beside is None:
        beside = [render(stack, definition) for stack in compared_with(ours, definition)]
    others = {item.stack: item.objects for item in beside}
    found = check_all({**ours, **others}, day)
    for name, already in check_all(others, day).items():
        found[name] = [each for each in found[name] if each not in already]
    return {name: of_stack for name, of_stack in found.items() if name in ours or of_stack}


def today() -> date:
    """Return the day in UTC, so that a waiver ends everywhere at once."""
    return datetime.now(UTC).date()


def enforce(found: Mapping[str, Sequence[Finding]], outcome: str = "nothing was written") -> str:
    """Return advisories and waivers as a text; raise CommandError with every finding where one is mandatory."""
    if any(each.severity == "mandatory" for of_stack in found.values() for each in of_stack):
        where = "docs/guardrails.md explains the rules, and how one of them is waived"
        raise CommandError(f"{report(found)}\n{summary(found)}; {outcome}. {where}.")
    return report(found, MOST)
