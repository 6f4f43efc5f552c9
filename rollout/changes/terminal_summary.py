"""What a change means for what runs, for the terminal: restarts, GPU devices, guardrails."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from policies.guardrails.checking import counted
from stacks.problems import escaped

from . import restarts
from .stack_change import StackChange, alike

Line = tuple[str, str]
"""A text and its style."""


def terminal_summary(changes: Sequence[StackChange]) -> Text:
    """Return what restarts and for how long, what GPU devices are taken, and what guardrails say."""
    parts = [_restarts(changes), _notices(changes), _devices(changes), _findings(changes), _grave(changes)]
    return Text("\n").join(Text("\n").join(Text(*line) for line in part) for part in parts if part)


def _restarts(changes: Iterable[StackChange]) -> list[Line]:
    lines: list[Line] = []
    for stack, restart in ((change, restart) for change in changes for restart in change.restarts):
        style = "bold red" if restart.replaced else "yellow"
        gone, whole = restarts.without_replica(restart), restarts.whole(restart)
        place = f"{stack.name} {restart.workload.kind} {restart.workload.name}"
        lines += [
            (f"  {escaped(place)}: {restarts.how(restart)}", style),
            (f"      because of {escaped(restarts.because(restart))}", ""),
            (f"      without a replica: {gone}; whole update: {whole}", ""),
        ]
        if restart.models:
            lines.append((f"      models cold: {restarts.cold(restart, escaped)}", ""))
    return [("What restarts:", "bold"), *lines, (restarts.ASSUMPTIONS, "dim")] if lines else []


def _notices(changes: Iterable[StackChange]) -> list[Line]:
    lines = [
        (f"  {escaped(f'{change.name} {notice.kind} {notice.name}: {notice.what}')}", "")
        for change in changes
        for notice in change.notices
        if not notice.grave
    ]
    return [("Without a restart:", "bold"), *lines] if lines else []


def _devices(changes: Iterable[StackChange]) -> list[Line]:
    lines = [
        (f"  {escaped(f'{change.name} {one.kind}')}: {one.before} → {one.after}{_of(one.there)}", "")
        for change in changes
        for one in change.devices
        if one.before != one.after
    ]
    return [("GPU devices, autoscalers at their most:", "bold"), *lines] if lines else []


def _of(there: int | None) -> str:
    return "" if there is None else f" of {there} on the data plane"


def _findings(changes: Sequence[StackChange]) -> list[Line]:
    found = alike((change.name, (each, change.is_new(each))) for change in changes for each in change.findings)
    lines: list[Line] = []
    for (each, new), stacks in sorted(found.items(), key=lambda item: not item[0][1]):
        if new or each.severity == "mandatory":
            place = f"{', '.join(stacks)} {each.object}: {each.what} ({each.rule})"
            style = "bold red" if each.severity == "mandatory" else "yellow"
            lines.append((f"  {'NEW ' if new else ''}{each.severity} {escaped(place)}", style))
    changing = any(change.objects for change in changes)
    if changing and (quiet := counted(each for each, new in found if not new and each.severity != "mandatory")):
        lines.append((f"  as before: {quiet}", ""))
    if fixed := len({each for change in changes for each in change.fixed}):
        lines.append((f"  {fixed} of before no longer there", ""))
    return [("Guardrails:", "bold"), *lines] if lines else []


def _grave(changes: Iterable[StackChange]) -> list[Line]:
    """Return what is as bad as a deletion: it stands last, where nobody misses it."""
    grave = alike((change.name, notice) for change in changes for notice in change.grave)
    return [
        (escaped(f"{', '.join(stacks)} {notice.kind} {notice.name}: {notice.what}"), "bold red")
        for notice, stacks in grave.items()
    ]
