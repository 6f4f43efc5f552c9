"""All consequences of a change for one stack, for reports."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from policies.guardrails import Finding
from policies.guardrails.objects import mappings, text
from stacks.command import tidegate
from stacks.definition.money import Cost, cost, difference
from stacks.problems import counted

from .compare import DATASETS, KEPT, KubernetesObject, ObjectChange, compare, tally
from .permissions import PermissionChange, definition_in, permission_change
from .restarts import MODEL, Notice, Restart, notices, restarting, restarts
from .workloads import number

State = Literal["new", "removed", "orphaned", "changed", "unchanged"]
Thing = TypeVar("Thing")
_ORDER = ("mandatory", "advisory", "waived")


@dataclass(frozen=True)
class Devices:
    """Devices of one kind that a stack needs, with autoscalers at their maximum."""

    kind: str
    before: int
    after: int
    there: int | None  # Devices of its data plane, if the definition lists them.


@dataclass(frozen=True)
class StackChange:
    """One stack: its changes, restarts, devices and broken rules."""

    name: str
    state: State
    objects: Sequence[ObjectChange]
    restarts: Sequence[Restart]
    notices: Sequence[Notice]
    devices: Sequence[Devices]
    findings: Sequence[Finding]  # Of the guardrails, after the change.
    known: Sequence[Finding]  # Before the change.
    permissions: PermissionChange = field(default_factory=PermissionChange)
    costs: tuple[Cost, Cost] | None = None  # Before and after, autoscalers at their maximum. None if not recorded.
    stays: str = ""  # For a stack that is not described: its remaining objects, as a sentence without a subject.
    down: str = ""  # The command that removes them.

    @property
    def dangerous(self) -> list[ObjectChange]:
        return [change for verb in ("deleted", "replaced") for change in self.objects if change.verb == verb]

    @property
    def weaker(self) -> list[str]:
        """Return what the change allows for the first time, and the requirements that it drops, as sentences."""
        return [*self.permissions.weaker, *(str(grant) for grant in self.permissions.grants if grant.wider)]

    @property
    def grave(self) -> list[Notice]:
        """Notices that reviewers must see as they see deletions."""
        return [notice for notice in self.notices if notice.grave]

    def is_new(self, finding: Finding) -> bool:
        """Whether the change introduces a finding: the object did not break the rule as severely before."""
        return _breach(finding) not in map(_breach, self.known)


def stack_change(
    name: str,
    before: Sequence[KubernetesObject] | None,
    after: Sequence[KubernetesObject] | None,
    *,
    there: Mapping[str, int] | None = None,
    findings: Sequence[Finding] = (),
    known: Sequence[Finding] = (),
    definition: object = None,
) -> StackChange:
    """Return a stack's consequences. `before` or `after` is None without it. `definition` is the file in commands."""
    # A stack that was taken down counts as new, whatever its Namespace still records.
    old, new = (
        each if any(item.get("kind") not in KEPT for item in each) else ()
        for each in (before or (), (before if after is None else after) or ())
    )
    # A stack that is no longer described keeps running, with its devices, until `tidegate down`.
    changes = [] if after is None else compare(before or (), after)
    state: State = "unchanged"
    started: list[Restart] = []
    effects: list[Notice] = []
    permissions = PermissionChange()
    stays = down = ""
    if before is None:
        state = "new"
    elif after is None:
        state = "removed"
        stays = f"is no longer described: its {counted(before, 'object')} stay and serve until you take the stack down"
        if context := text(definition_in(before), "dataPlane", "context"):
            down = tidegate("down", definition, cluster=context, stack=name)
    elif changes:
        state, started = "changed", restarts(before, after)
        effects = notices(before, after)
        if old or not new:
            permissions = permission_change(before, after)
    devices: list[Devices] = []
    costs = None
    if old and "devices" not in definition_in(old):  # rendered by version 0.1.0
        what = "version 0.1.0 did not record them, so neither their number nor their cost is compared"
        effects = [*effects, Notice("GPU", "devices", what)]
    else:
        (was, cost_before), (will, cost_after) = map(_devices, (old, new))
        costs = cost_before, cost_after
        devices = [
            Devices(kind, was[kind], will[kind], None if there is None else there.get(kind, 0))
            for kind in sorted(was.keys() | will.keys())
        ]
    return StackChange(
        name,
        state,
        changes,
        started,
        effects,
        devices,
        findings,
        known,
        permissions,
        costs=costs,
        stays=stays,
        down=down,
    )


def _devices(objects: Sequence[Mapping[str, Any]]) -> tuple[Counter[str], Cost]:
    """Return the number of devices of each kind, and their cost, as a stack's Namespace records them."""
    counts, total = Counter[str](), Cost()
    for each in mappings(definition_in(objects), "devices"):
        count, price = number(each, "count", default=0), each.get("perHour")
        counts[text(each, "device")] += count
        known = price if isinstance(price, int | float) else None
        total += cost(count, known, text(each, "currency"), text(each, "kind"))
    return counts, total


def _breach(finding: Finding) -> tuple[str, ...]:
    return finding.rule, finding.severity, finding.kind, finding.namespace, finding.name


def alike(things: Iterable[tuple[str, Thing]]) -> dict[Thing, list[str]]:
    """Return each thing once, with the names of its stacks."""
    found: dict[Thing, list[str]] = {}
    for stack, thing in things:
        found.setdefault(thing, []).append(stack)
    return found


def findings_of(changes: Sequence[StackChange]) -> list[tuple[Finding, bool, list[str]]]:
    """Return each finding, whether it is new, and its stacks. New and severe ones come first."""
    found = alike((change.name, (each, change.is_new(each))) for change in changes for each in change.findings)
    ordered = sorted(found.items(), key=lambda item: (not item[0][1], _ORDER.index(item[0][0].severity)))
    return [(finding, is_new, stacks) for (finding, is_new), stacks in ordered]


def failure_summary(changes: Sequence[StackChange]) -> str:
    """Return `2 mandatory guardrail findings`, or an empty text. Equal findings of several stacks count once."""
    mandatory = {each for change in changes for each in change.findings if each.severity == "mandatory"}
    return counted(mandatory, "mandatory guardrail finding") if mandatory else ""


def verdict(changes: Sequence[StackChange], refused: int = 0) -> str:
    """Return the one-line summary: `3 stacks: 2 changed, 1 unchanged · 1 DELETED · 2 pools restart`. `refused` counts
    the objects that the cluster would refuse."""
    states = Counter(change.state for change in changes)
    words = {state: state.upper() if state in ("removed", "orphaned") else state for state in get_args(State)}
    kinds = ", ".join(f"{states[state]} {word}" for state, word in words.items() if states[state])
    objects = [item for change in changes for item in change.objects]
    datasets = {item.name for item in objects if item.verb == "replaced" and item.kind in DATASETS}
    unserved = {notice.name for change in changes for notice in change.grave if notice.kind == MODEL}
    weaker = {way for change in changes for way in change.weaker}
    lost = {way for change in changes for way in change.permissions.lost}
    was, will = (sum((change.costs[at] for change in changes if change.costs), Cost()) for at in (0, 1))
    money = (
        f"a month {was} → {will} ({difference(was, will)})" if was.month is not None and will.month is not None else ""
    )
    devices = [one for change in changes for one in change.devices]
    before, after = sum(one.before for one in devices), sum(one.after for one in devices)
    parts = [
        failure_summary(changes),
        f"the cluster REFUSES {counted(range(refused), 'object')}" if refused else "",
        f"{counted(weaker, 'thing')} WEAKER" if weaker else "",
        f"{counted(lost, 'thing')} LOST" if lost else "",
        f"{counted(datasets, 'dataset')} REPLACED" if datasets else "",
        f"{counted(unserved, 'model')} NO LONGER SERVED" if unserved else "",
        f"{counted(changes, 'stack')}: {kinds}",
        f"objects: {tally(objects)}" if objects else "",
        restarting(restart for change in changes for restart in change.restarts),
        f"GPU devices {before} → {after}" if any(one.before != one.after for one in devices) else "",
        money if was.month != will.month else "",
    ]
    return " · ".join(part for part in parts if part)
