"""Reports what changes on a terminal, object by object and field by field; what is dangerous comes first."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from stacks.problems import counted, escaped, listed, shortened, shown

from ..terminal import in_shell
from .compare import DATASETS, KEPT, MISSING, WORDS, FieldChange, ObjectChange, Verb, tally
from .secrets import Hidden

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
