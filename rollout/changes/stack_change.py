"""Everything that a change means for one stack, for reports to say."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from policies.guardrails import Finding
from stacks.problems import counted

from .compare import DATASETS, ObjectChange, tally
from .restarts import MODEL, Notice, Restart, notices, restarting, restarts
from .workloads import gpu_slices

State = Literal["new", "removed", "changed", "unchanged"]
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Devices:
    """Devices of one kind that a stack takes, autoscalers at their most."""

    kind: str
    before: int
    after: int
    there: int | None
    """How many its data plane has, where that is declared."""


@dataclass(frozen=True)
class StackChange:
    """One stack: what changes, what restarts, what it takes, which rules it breaks."""

    name: str
    state: State
    objects: tuple[ObjectChange, ...]
    restarts: tuple[Restart, ...]
    notices: tuple[Notice, ...]
    devices: tuple[Devices, ...]
    findings: tuple[Finding, ...]
    """Of the guardrails, after the change."""
    known: tuple[Finding, ...]
    """Those of before the change."""

    @property
    def dangerous(self) -> tuple[ObjectChange, ...]:
        """Objects that are deleted (first) or replaced."""
        gone = [change for change in self.objects if change.verb == "deleted"]
        return (*gone, *(change for change in self.objects if change.verb == "replaced"))

    @property
    def grave(self) -> tuple[Notice, ...]:
        """What happens without a restart, and is as bad as a deletion."""
        return tuple(notice for notice in self.notices if notice.grave)

    def is_new(self, finding: Finding) -> bool:
        """Say whether the change brings a finding: not when the rule was broken there, and no less, before."""
        return _breach(finding) not in {_breach(before) for before in self.known}

    @property
    def fixed(self) -> tuple[Finding, ...]:
        """Findings of before that the change takes away; a stack that is gone itself has mended nothing."""
        if self.state == "removed":
            return ()
        now = {_breach(finding) for finding in self.findings}
        return tuple(finding for finding in self.known if _breach(finding) not in now)


def stack_change(
    name: str,
    changes: Sequence[ObjectChange],
    before: Sequence[Mapping[str, Any]] | None,
    after: Sequence[Mapping[str, Any]] | None,
    *,
    there: Mapping[str, int] | None = None,
    findings: Iterable[Finding] = (),
    known: Iterable[Finding] = (),
) -> StackChange:
    """Return what changes for a stack; `before` or `after` is None where there is no such stack."""
    if before is None or after is None:
        state: State = "new" if before is None else "removed"
        started: list[Restart] = []
        beside: list[Notice] = []
    else:
        state = "changed" if changes else "unchanged"
        started = restarts(before, after) if changes else []
        beside = notices(before, after, started) if changes else []
    was, will = gpu_slices(before or ()), gpu_slices(after or ())
    return StackChange(
        name,
        state,
        tuple(changes),
        tuple(started),
        tuple(beside),
        tuple(
            Devices(kind, was[kind], will[kind], None if there is None else there.get(kind, 0))
            for kind in sorted(was.keys() | will.keys())
        ),
        tuple(findings),
        tuple(known),
    )


def _breach(finding: Finding) -> tuple[str, ...]:
    return finding.rule, finding.severity, finding.kind, finding.namespace, finding.name


def alike(things: Iterable[tuple[str, Thing]]) -> dict[Thing, list[str]]:
    """Return each thing once, with the names of the stacks that have it."""
    found: dict[Thing, list[str]] = {}
    for stack, thing in things:
        found.setdefault(thing, []).append(stack)
    return found


def broken(changes: Sequence[StackChange]) -> str:
    """Return `2 mandatory guardrail findings`, or an empty text for none; what two stacks have alike counts once."""
    mandatory = {each for change in changes for each in change.findings if each.severity == "mandatory"}
    return counted(mandatory, "mandatory guardrail finding") if mandatory else ""


def verdict(changes: Sequence[StackChange], refused: int = 0) -> str:
    """Return what a reviewer reads at a glance: `3 stacks: 2 changed, 1 unchanged · 1 DELETED · 2 pools restart`.

    `refused` counts the objects that the cluster would not take.
    """
    states = Counter(change.state for change in changes)
    words: Mapping[State, str] = {"new": "new", "removed": "REMOVED", "changed": "changed", "unchanged": "unchanged"}
    kinds = ", ".join(f"{states[state]} {word}" for state, word in words.items() if states[state])
    objects = [item for change in changes for item in change.objects]
    datasets = {item.name for item in objects if item.verb == "replaced" and item.kind in DATASETS}
    unserved = {notice.name for change in changes for notice in change.grave if notice.kind == MODEL}
    devices = [one for change in changes for one in change.devices]
    before, after = sum(one.before for one in devices), sum(one.after for one in devices)
    parts = [
        broken(changes),
        f"the cluster REFUSES {counted(range(refused), 'object')}" if refused else "",
        f"{counted(datasets, 'dataset')} REPLACED" if datasets else "",
        f"{counted(unserved, 'model')} NO LONGER SERVED" if unserved else "",
        f"{counted(changes, 'stack')}: {kinds}",
        f"objects: {tally(objects)}" if objects else "",
        restarting(restart for change in changes for restart in change.restarts),
        f"GPU devices {before} → {after}" if any(one.before != one.after for one in devices) else "",
    ]
    return " · ".join(part for part in parts if part)
