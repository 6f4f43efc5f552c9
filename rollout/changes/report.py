"""Prints the changes object by object and field by field, dangerous ones first."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from stacks.problems import count_of, escaped, shortened, shown

from .compare import DATASETS, KEPT, MISSING, WORDS, FieldChange, ObjectChange, Verb, tally
from .secrets import Hidden

STYLES: Mapping[Verb, str] = {"created": "green", "changed": "yellow", "replaced": "bold red", "deleted": "bold red"}
_OF_DATASETS = ", and datasets are protected: add a dataset with another name and move the servers to it"
_STAYS = "not deleted: with Helm it stays, and Pulumi refuses until it is unprotected. Its files stay"
_OF_OTHERS = ": kubectl refuses it, and Pulumi deletes the object and creates a new one"
_LONGEST = 200  # Characters: long enough to read a whole access rule.
MOST_FIELDS = 40  # Fields shown of one object.


def report(changes: Mapping[str, Sequence[ObjectChange]], most_fields: int | None = MOST_FIELDS) -> Text:
    """Return the changes of each stack, with at most so many fields per object (None: all). If a stack changes exactly
    as an earlier one, refer to that."""
    out = Text()
    seen: dict[str, str] = {}
    for stack, found in changes.items():
        if not found:
            continue
        body = _objects(found, most_fields)
        out.append(f"{escaped(stack)}: {tally(found)}", "bold")
        if body.plain in seen:
            out.append(f" – the same as {seen[body.plain]}\n")
            continue
        seen[body.plain] = escaped(stack)
        out.append("\n").append_text(body)
    out.rstrip()
    return out


def meaning(change: ObjectChange) -> str:
    """Return a warning about a replacement, or about the deletion of data. Empty for other changes."""
    if change.verb == "deleted" and change.kind in KEPT:
        return _STAYS
    if not change.immutable:
        return ""
    remedy = _OF_DATASETS if change.kind in DATASETS else _OF_OTHERS
    return f"{', '.join(change.immutable)} cannot be changed in place{remedy}"


def _objects(changes: Sequence[ObjectChange], most_fields: int | None) -> Text:
    out = Text()
    for change in sorted(changes, key=lambda change: change.verb not in ("replaced", "deleted")):
        out.append(f"  {WORDS[change.verb]:8} ", STYLES[change.verb])
        out.append(f"{change.kind} {escaped(change.name)}\n")
        if what := meaning(change):
            out.append(f"      {what}\n", "bold red")
        first = change.fields[:most_fields]
        for field in first:
            out.append(f"      {escaped(field.place)} {values(field)}\n")
        if more := len(change.fields) - len(first):
            out.append(f"      … and {count_of(more, 'more field')}\n")
    return out


def values(change: FieldChange) -> str:
    """Return a field's values before and after, shortened, and never a secret."""
    old, new = change.old, change.new
    if change.element:
        verb, value = ("added", new) if old is MISSING else ("removed", old)
        return f"{verb}: {escaped(shortened(_element(value), _LONGEST))}"
    if isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        before, after = ((value.whole if isinstance(value, Hidden) else value).splitlines() for value in (old, new))
        gone, come = (sum(line not in other for line in one) for one, other in ((before, after), (after, before)))
        return f"(text of {len(before)} lines: {gone} gone, {come} new)"
    if isinstance(old, Hidden) and isinstance(new, Hidden) and str(old) == str(new):
        return "(values are not shown)"
    was, now = _brief(old, new), _brief(new, old)
    if shortened(was, _LONGEST) == shortened(now, _LONGEST):  # they differ only near the end: show that part
        same = (at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other)
        start = max(0, next(same, min(len(was), len(now))) - 20)
        was, now = f"…{was[start:]}", f"…{now[start:]}"
    return f"{escaped(shortened(was, _LONGEST))} → {escaped(shortened(now, _LONGEST))}"


def _element(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _brief(value: Any, other: Any) -> str:
    """Return a value as text, quoted only if it would otherwise look the same as the other one."""
    if value is MISSING:
        return "–"
    if isinstance(value, str) and (isinstance(other, str) or other is MISSING):
        return value or '""'
    return _element(value) if other is MISSING and isinstance(value, (dict, list)) else shown(value)
