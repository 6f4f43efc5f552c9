"""Says what changes on a terminal, so that what is dangerous is seen first.

Object by object and field by field, and what that means for what runs: restarts, GPU devices, guardrails.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rich.text import Text

from policies.guardrails.checking import counted as counted_findings
from stacks.problems import counted, escaped, listed, shortened, shown

from ..room import difference, lines
from ..terminal import in_shell
from . import restarts
from .compare import DATASETS, KEPT, MISSING, WORDS, FieldChange, ObjectChange, Verb, tally
from .secrets import Hidden
from .stack_change import Devices, StackChange, alike, findings_of, notices_of

STYLES: Mapping[Verb, str] = {"created": "green", "changed": "yellow", "replaced": "bold red", "deleted": "bold red"}
_OF_DATASETS = ", and datasets are protected: add a dataset of another name and move the servers to it"
_STAYS = "nothing deletes it: with Helm it stays, and Pulumi refuses until it is unprotected; the files in it stay"
_OF_OTHERS = ": kubectl refuses it; Pulumi deletes the object and makes a new one"
_LONGEST = 60
_LONGEST_ELEMENT = 200
_ALL = 10**9


def report(changes: Mapping[str, Sequence[ObjectChange]], *, objects: int = _ALL, fields: int = _ALL) -> Text:
    """Return what changes in each stack; of objects that are merely created or changed, and of fields, at most so many.

    A stack that changes just as one before it says only that.
    """
    out = Text()
    seen: dict[str, str] = {}
    for stack, found in changes.items():
        if not found:
            continue
        body = _objects(found, objects, fields)
        out.append(f"{escaped(stack)}: {tally(found)}", "bold")
        if body.plain in seen:
            out.append(f" – the same as {seen[body.plain]}\n")
            continue
        seen[body.plain] = escaped(stack)
        out.append("\n").append_text(body)
    out.rstrip()
    return out


def total(changes: Mapping[str, Sequence[ObjectChange]]) -> str:
    """Return `In 2 of 3 stacks: 4 changed, 1 REPLACED.`, or an empty text when nothing changes."""
    found = [change for of_stack in changes.values() for change in of_stack]
    differing = sum(bool(of_stack) for of_stack in changes.values())
    return f"In {differing} of {counted(changes, 'stack')}: {tally(found)}." if found else ""


def left_behind(changes: Mapping[str, Sequence[ObjectChange]], contexts: Mapping[str, str]) -> str:
    """Return how deleted objects come off a cluster; `contexts` has those of the stacks that are still described."""
    lines, commands, kept = [], [], []
    for stack, found in changes.items():
        if stack not in contexts:
            # No commands: a stack of another name, on a plane that was named anew, may have these very objects now.
            lines.append(
                f"{escaped(stack)} is no longer described: what it has in a cluster stays there;"
                " `tidegate preview --cluster <context>` shows it, and the command that takes it down."
            )
            continue
        for change in reversed(found):
            if change.verb == "deleted" and change.kind in KEPT:
                kept.append(f"{change.kind} {change.name} ({contexts[stack]})")
            elif change.verb == "deleted":
                where = ["--context", contexts[stack], *(["-n", change.namespace] if change.namespace else [])]
                words = ["kubectl", *where, "delete", change.kind, change.name]
                commands.append(f"  {' '.join(map(in_shell, words))}")
    if commands:
        lines.append("`kubectl apply` deletes nothing: where that is used, delete by hand what is gone:")
        lines += commands  # all of them: none must be left behind when these are copied
    if kept:
        lines.append(f"Kept for the data in them: {listed(kept, len(kept))}. Delete these by hand if you mean it.")
    return "\n".join(lines)


def meaning(change: ObjectChange) -> str:
    """Return what people have to know of a replacement, or of the deletion of what holds data; else an empty text."""
    if change.verb == "deleted" and change.kind in KEPT:
        return _STAYS
    if not change.reasons:
        return ""
    remedy = _OF_DATASETS if change.kind in DATASETS else _OF_OTHERS
    return f"{', '.join(change.reasons)} cannot be changed in place{remedy}"


def _objects(changes: Sequence[ObjectChange], most: int, fields: int) -> Text:
    out = Text()
    dangerous = [change for change in changes if change.verb in ("replaced", "deleted")]
    harmless = [change for change in changes if change.verb not in ("replaced", "deleted")]
    for change in [*dangerous, *harmless[:most]]:
        out.append(f"  {WORDS[change.verb]:8} ", STYLES[change.verb])
        out.append(f"{change.kind} {escaped(change.name)}\n")
        if what := meaning(change):
            out.append(f"      {what}\n", "bold red")
        for field in change.fields[:fields]:
            out.append(f"      {escaped(field.place)} {values(field)}\n")
        if len(change.fields) > fields:
            out.append(f"      … and {len(change.fields) - fields} more fields\n")
    if len(harmless) > most:
        out.append(f"  … and {len(harmless) - most} more objects: {tally(harmless[most:])}\n")
    return out


def values(change: FieldChange) -> str:
    """Return a field's values before and after, short, and never a secret."""
    old, new = change.old, change.new
    if change.element:
        verb, value = ("added", new) if old is MISSING else ("removed", old)
        return f"{verb}: {escaped(shortened(_element(value), _LONGEST_ELEMENT))}"
    if isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        before, after = ((value.whole if isinstance(value, Hidden) else value).splitlines() for value in (old, new))
        gone, come = (sum(line not in other for line in one) for one, other in ((before, after), (after, before)))
        return f"(text of {len(before)} lines: {gone} gone, {come} new)"
    if isinstance(old, Hidden) and isinstance(new, Hidden) and str(old) == str(new):
        return "(values are not shown)"
    was, now = _brief(old, new), _brief(new, old)
    # What comes or goes as a whole stands alone in its line: an access rule has to be read, not only noticed.
    longest = _LONGEST_ELEMENT if old is MISSING or new is MISSING else _LONGEST
    return f"{_apart(was, now, longest)} → {_apart(now, was, longest)}"


def _element(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _brief(value: Any, other: Any) -> str:
    """Return a value as text; quoted only where it would look the same as the other one without."""
    if value is MISSING:
        return "–"
    if isinstance(value, str) and (isinstance(other, str) or other is MISSING):
        return value or '""'
    return _element(value) if other is MISSING and isinstance(value, (dict, list)) else shown(value)


def _apart(text: str, other: str, longest: int) -> str:
    """Return a text cut to where it differs from the other: the ends of two long image names, not their beginnings."""
    text = escaped(text)
    if len(text) <= longest:
        return text
    same = next((i for i, (a, b) in enumerate(zip(text, escaped(other), strict=False)) if a != b), 0)
    start = max(0, text.rfind("/", 0, same) + 1) if same > longest // 3 else 0
    start = start if same - start < longest // 2 else same - 10
    part = ("…" if start else "") + text[start:]
    return shortened(part, longest)


# ---- what it means for what runs ----


def terminal_summary(changes: Sequence[StackChange]) -> Text:
    """Return what restarts, what GPU devices are taken, and what guardrails say.

    What is as bad as a deletion stands last, where nobody misses it.
    """
    devices = [
        (f"  {escaped(f'{change.name} {one.kind}')}: {one.before} → {one.after}{_of(one)}", "")
        for change in changes
        for one in change.devices
        if one.before != one.after
    ]
    parts = {
        "What restarts:": _restarts(changes),
        "Other effects:": [(f"  {line}", "") for line in _notices(changes, grave=False)],
        "Stricter, or newly offered:": [(f"  {line}", "") for line in sentences(changes, "stricter")],
        "GPU devices, autoscalers at their most:": devices,
        "GPUs a month, and room, autoscalers at their most:": [(escaped(line), "") for line in _money(changes)],
        "Guardrails:": _findings(changes),
    }
    lines = [line for title, body in parts.items() if body for line in ((title, "bold"), *body)]
    grave = (*_notices(changes, grave=True), *_permissions(changes), *_stays(changes))
    lines += [(line, "bold red") for line in grave]
    return Text("\n").join(Text(*line) for line in lines)


def _money(changes: Sequence[StackChange]) -> list[str]:
    costing = [
        change for change in changes if change.state != "unchanged" and any(cost.devices for cost in change.costs)
    ]
    return lines((change.name, _cost_words(change), change.room) for change in costing)


def _cost_words(change: StackChange) -> str:
    """Return what a stack costs a month, before and after where that differs."""
    before, after = change.costs
    return str(after) if before == after else f"{before} → {after} ({difference(before, after)})"


def sentences(changes: Sequence[StackChange], about: Literal["weaker", "lost", "stricter"]) -> list[str]:
    """Return what changes of permissions in one direction, behind the stacks in which it does."""
    ways = alike((change.name, way) for change in changes for way in getattr(change.permissions, about))
    return [escaped(f"{', '.join(stacks)} {way}") for way, stacks in ways.items()]


def _permissions(changes: Sequence[StackChange]) -> list[str]:
    granted = alike(
        (change.name, f"newly lets {each.who} {each.action}: {each.models}")
        for change in changes
        for each in change.permissions.grants
    )
    new = [escaped(f"{', '.join(stacks)} {way}") for way, stacks in granted.items()]
    return [*sentences(changes, "weaker"), *new, *sentences(changes, "lost")]


def _stays(changes: Sequence[StackChange]) -> list[str]:
    return [
        line
        for change in changes
        if change.stays
        for line in (escaped(f"{change.name} {change.stays}"), f"  {change.down}")
        if line.strip()
    ]


def _of(devices: Devices) -> str:
    return "" if devices.there is None else f" of {devices.there} on the data plane"


def _notices(changes: Sequence[StackChange], *, grave: bool) -> list[str]:
    found = notices_of(changes, grave=grave).items()
    return [escaped(f"{', '.join(stacks)} {notice.kind} {notice.name}: {notice.what}") for notice, stacks in found]


def _restarts(changes: Iterable[StackChange]) -> list[tuple[str, str]]:
    lines = []
    for change in changes:
        for restart in change.restarts:
            place = escaped(f"{change.name} {restart.workload.kind} {restart.workload.name}")
            lines += [
                (f"  {place}: {restarts.how(restart)}", "bold red" if restart.replaced else "yellow"),
                (f"      because of {escaped(restarts.because(restart))}", ""),
            ]
            if restart.models:
                lines.append((f"      models: {escaped(restarts.models(restart))}", ""))
    return lines


def _findings(changes: Sequence[StackChange]) -> list[tuple[str, str]]:
    found = findings_of(changes)
    lines = []
    for each, new, stacks in found:
        if new or each.severity == "mandatory":
            place = f"{', '.join(stacks)} {each.object}: {each.what} ({each.rule})"
            style = "bold red" if each.severity == "mandatory" else "yellow"
            lines.append((f"  {'NEW ' if new else ''}{each.severity} {escaped(place)}", style))
    quiet = counted_findings(each for each, new, _ in found if not new and each.severity != "mandatory")
    if quiet and any(change.objects for change in changes):
        lines.append((f"  as before: {quiet}", ""))
    if fixed := len({each for change in changes for each in change.fixed}):
        lines.append((f"  {fixed} of before no longer there", ""))
    return lines
