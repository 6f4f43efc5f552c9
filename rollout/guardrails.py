"""Holds what was rendered to the guardrails, before anything is written or applied."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from policies.guardrails import Finding, check_all
from policies.guardrails.report import report, summary

from .errors import RolloutError
from .render import Rendered

MOST = 6
"""Lines that an advisory is said in."""
PINNED = "images-are-pinned-by-digest"


def findings(rendering: Sequence[Rendered], today: date | None = None) -> dict[str, list[Finding]]:
    """Return what is wrong with each stack; days are those of UTC, so that a waiver ends everywhere at once."""
    today = today or datetime.now(UTC).date()
    return check_all({item.stack: item.objects for item in rendering}, today)


def enforce(rendering: Sequence[Rendered], *, outcome: str = "nothing was written", local_cluster: bool = False) -> str:
    """Return advisories and waivers as a text; raise RolloutError with every finding where one is mandatory.

    On a local cluster, whose simulated nodes run no images, one without a digest is only worth an advisory.
    """
    found = findings(rendering)
    if local_cluster:
        found = {stack: [eased(each) for each in of_stack] for stack, of_stack in found.items()}
    if any(each.severity == "mandatory" for of_stack in found.values() for each in of_stack):
        raise RolloutError(
            f"{report(found)}\n{summary(found)}; {outcome}. docs/guardrails.md explains the rules, "
            "and how one of them is waived."
        )
    # The definition's own advisory about these has said it already, with the line where the image stands.
    said = {stack: [each for each in of_stack if each.rule != PINNED] for stack, of_stack in found.items()}
    return report(said, MOST)


def eased(each: Finding) -> Finding:
    """Return a finding as it counts on a local cluster."""
    return replace(each, severity="advisory") if each.rule == PINNED and each.severity == "mandatory" else each
