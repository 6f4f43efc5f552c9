"""Says what changes, object by object and field by field, so that what is dangerous is seen first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from stacks.problems import escaped, shown

from .check import counted
from .compare import MISSING, FieldChange, ObjectChange, Verb

STYLES: Mapping[Verb, str] = {"created": "green", "changed": "yellow", "replaced": "bold red", "deleted": "bold red"}
_WORDS: Mapping[Verb, str] = {
    "created": "created ",
    "changed": "changed ",
    "replaced": "REPLACED",
    "deleted": "DELETED ",
}
_LONGEST = 60
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
        out.append(f"{stack}: {tally(found)}", "bold")
        if body.plain in seen:
            out.append(f" – the same as {seen[body.plain]}\n")
            continue
        seen[body.plain] = stack
        out.append("\n").append_text(body)
    out.rstrip()
    return out


def tally(changes: Sequence[ObjectChange]) -> str:
    """Return `1 created, 2 changed, 1 REPLACED`."""
    counts = Counter(change.verb for change in changes)
    return ", ".join(f"{counts[verb]} {_WORDS[verb].strip()}" for verb in STYLES if counts[verb])


def total(changes: Mapping[str, Sequence[ObjectChange]]) -> str:
    """Return `In 2 of 3 stacks: 4 changed, 1 REPLACED.`, or an empty text when nothing changes."""
    found = [change for of_stack in changes.values() for change in of_stack]
    differing = [stack for stack, of_stack in changes.items() if of_stack]
    return f"In {len(differing)} of {counted(changes, 'stack')}: {tally(found)}." if found else ""


def _objects(changes: Sequence[ObjectChange], most: int, fields: int) -> Text:
    out = Text()
    dangerous = [change for change in changes if change.verb in ("replaced", "deleted")]
    harmless = [change for change in changes if change.verb not in ("replaced", "deleted")]
    for change in [*dangerous, *harmless[:most]]:
        out.append(f"  {_WORDS[change.verb]} ", STYLES[change.verb])
        out.append(f"{change.kind} {escaped(change.name)}\n")
        for immutable in change.reasons:
            out.append(f"      {immutable} cannot be changed: a new object takes this one's place\n", "bold red")
        for field in change.fields[:fields]:
            out.append(f"      {escaped(field.place)} {_values(field)}\n")
        if len(change.fields) > fields:
            out.append(f"      … and {len(change.fields) - fields} more fields\n")
    if len(harmless) > most:
        out.append(f"  … and {len(harmless) - most} more objects: {tally(harmless[most:])}\n")
    return out


def _values(change: FieldChange) -> str:
    if change.secret:
        return "(values are not shown)"
    old, new = change.old, change.new
    if isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        return _lines(old, new)
    before, after = _brief(old, new), _brief(new, old)
    return f"{_apart(before, after)} → {_apart(after, before)}"


def _brief(value: Any, other: Any) -> str:
    """Return a value as text; quoted only where it would look the same as the other one without."""
    if value is MISSING:
        return repr(MISSING)
    if isinstance(value, str) and (isinstance(other, str) or other is MISSING):
        return value or '""'
    return shown(value)


def _apart(text: str, other: str) -> str:
    """Return a text cut to where it differs from the other: the ends of two long image names, not their beginnings."""
    text = escaped(text)
    if len(text) <= _LONGEST:
        return text
    same = next((i for i, (a, b) in enumerate(zip(text, escaped(other), strict=False)) if a != b), 0)
    start = max(0, text.rfind("/", 0, same) + 1) if same > _LONGEST // 3 else 0
    start = start if same - start < _LONGEST // 2 else same - 10
    part = ("…" if start else "") + text[start:]
    return part if len(part) <= _LONGEST else part[: _LONGEST - 1] + "…"


def _lines(old: str, new: str) -> str:
    before, after = old.splitlines(), new.splitlines()
    gone, come = (
        len([line for line in before if line not in after]),
        len([line for line in after if line not in before]),
    )
    return f"(text of {len(before)} lines: {gone} gone, {come} new)"
