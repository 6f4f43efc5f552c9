"""Everything that a change means for one stack, for reports to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .asides import Aside, asides
from .compare import ObjectChange
from .restarts import Restart, restarts
from .slices import gpu_slices

if TYPE_CHECKING:
    from policies.guardrails import Finding

State = Literal["new", "removed", "changed", "unchanged"]


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
    asides: tuple[Aside, ...]
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

    def is_new(self, finding: Finding) -> bool:
        """Say whether the change brings a finding: not when the rule was broken there, and no less, before."""
        return _breach(finding) not in {_breach(before) for before in self.known}

    @property
    def fixed(self) -> tuple[Finding, ...]:
        """Findings of before that the change takes away."""
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
        restarting: list[Restart] = []
        beside: list[Aside] = []
    else:
        state = "changed" if changes else "unchanged"
        restarting = restarts(before, after) if changes else []
        beside = asides(before, after, restarting) if changes else []
    return StackChange(
        name,
        state,
        tuple(changes),
        tuple(restarting),
        tuple(beside),
        _devices(gpu_slices(before or ()), gpu_slices(after or ()), there),
        tuple(findings),
        tuple(known),
    )


def _breach(finding: Finding) -> tuple[str, ...]:
    return finding.rule, finding.severity, finding.kind, finding.namespace, finding.name


def _devices(before: Counter[str], after: Counter[str], there: Mapping[str, int] | None) -> tuple[Devices, ...]:
    return tuple(
        Devices(kind, before[kind], after[kind], None if there is None else there.get(kind, 0))
        for kind in sorted(before.keys() | after.keys())
    )


def verdict(changes: Sequence[StackChange]) -> str:
    """Return what a reviewer reads at a glance: `3 stacks: 2 changed, 1 unchanged · 1 DELETED · 2 pools restart`."""
    from .report import tally
    from .words import restarting

    states = Counter(change.state for change in changes)
    words: Mapping[State, str] = {"new": "new", "removed": "REMOVED", "changed": "changed", "unchanged": "unchanged"}
    kinds = ", ".join(f"{states[state]} {word}" for state, word in words.items() if states[state])
    broken = [finding for change in changes for finding in change.findings if finding.severity == "mandatory"]
    objects = tally([item for change in changes for item in change.objects])
    parts = [
        f"{len(broken)} mandatory guardrail finding{'' if len(broken) == 1 else 's'}" if broken else "",
        f"{len(changes)} stack{'' if len(changes) == 1 else 's'}: {kinds}",
        objects and f"objects: {objects}",
        restarting(restart for change in changes for restart in change.restarts),
        _slices(changes),
    ]
    return " · ".join(part for part in parts if part)


def _slices(changes: Sequence[StackChange]) -> str:
    devices = [one for change in changes for one in change.devices]
    before, after = sum(one.before for one in devices), sum(one.after for one in devices)
    return f"GPU devices {before} → {after}" if any(one.before != one.after for one in devices) else ""
