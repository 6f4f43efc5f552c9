"""Says what changes, object by object and field by field, so that what is dangerous is seen first."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from stacks.problems import counted, escaped, listed, shortened, shown

from ..terminal import in_shell
from .compare import DATASETS, MISSING, FieldChange, ObjectChange, Verb
from .secrets import Hidden

STYLES: Mapping[Verb, str] = {"created": "green", "changed": "yellow", "replaced": "bold red", "deleted": "bold red"}
WORDS: Mapping[Verb, str] = {
    "created": "created ",
    "changed": "changed ",
    "replaced": "REPLACED",
    "deleted": "DELETED ",
}
_OF_DATASETS = ", and datasets are protected: add a dataset of another name and move the servers to it"
_KEPT = ("Namespace", *DATASETS)
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


def tally(changes: Sequence[ObjectChange]) -> str:
    """Return `1 created, 2 changed, 1 REPLACED`."""
    counts = Counter(change.verb for change in changes)
    return ", ".join(f"{counts[verb]} {WORDS[verb].strip()}" for verb in STYLES if counts[verb])


def total(changes: Mapping[str, Sequence[ObjectChange]]) -> str:
    """Return `In 2 of 3 stacks: 4 changed, 1 REPLACED.`, or an empty text when nothing changes."""
    found = [change for of_stack in changes.values() for change in of_stack]
    differing = [stack for stack, of_stack in changes.items() if of_stack]
    return f"In {len(differing)} of {counted(changes, 'stack')}: {tally(found)}." if found else ""


def left_behind(changes: Mapping[str, Sequence[ObjectChange]], contexts: Mapping[str, str]) -> str:
    """Return how deleted objects come off a cluster; `contexts` has those of the stacks that are still described."""
    lines, commands, kept = [], [], []
    for stack, found in changes.items():
        if stack not in contexts:
            # No commands: a stack of another name, on a plane that was named anew, may have these very objects now.
            lines.append(f"{escaped(stack)} is no longer described: what it has in a cluster stays there.")
            continue
        for change in reversed(found):
            if change.verb == "deleted" and change.kind in _KEPT:
                kept.append(f"{change.kind} {change.name} ({contexts[stack]})")
            elif change.verb == "deleted":
                commands.append(f"  {_deletion(change, contexts[stack])}")
    if commands:
        lines.append("`kubectl apply` deletes nothing: where that is used, delete by hand what is gone:")
        lines += commands  # all of them: whoever copies these must not leave one behind
    if kept:
        lines.append(f"Kept for the data in them: {listed(kept, len(kept))}. Delete these by hand if you mean it.")
    return "\n".join(lines)


def meaning(change: ObjectChange) -> str:
    """Return what people have to know of a replacement, or of the deletion of what holds data; else an empty text."""
    if change.verb == "deleted" and change.kind in _KEPT:
        return _STAYS
    if not change.reasons:
        return ""
    remedy = _OF_DATASETS if change.kind in DATASETS else _OF_OTHERS
    return f"{', '.join(change.reasons)} cannot be changed in place{remedy}"


def _deletion(change: ObjectChange, context: str) -> str:
    where = ["--context", context, *(["-n", change.namespace] if change.namespace else [])]
    return " ".join(in_shell(word) for word in ["kubectl", *where, "delete", change.kind, change.name])


def _objects(changes: Sequence[ObjectChange], most: int, fields: int) -> Text:
    out = Text()
    dangerous = [change for change in changes if change.verb in ("replaced", "deleted")]
    harmless = [change for change in changes if change.verb not in ("replaced", "deleted")]
    for change in [*dangerous, *harmless[:most]]:
        out.append(f"  {WORDS[change.verb]} ", STYLES[change.verb])
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
        return _lines(*(value.whole if isinstance(value, Hidden) else value for value in (old, new)))
    if isinstance(old, Hidden) and isinstance(new, Hidden) and str(old) == str(new):
        return "(values are not shown)"
    before, after = _brief(old, new), _brief(new, old)
    # What comes or goes as a whole stands alone in its line: an access rule has to be read, not only noticed.
    longest = _LONGEST_ELEMENT if old is MISSING or new is MISSING else _LONGEST
    return f"{_apart(before, after, longest)} → {_apart(after, before, longest)}"


def _element(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _brief(value: Any, other: Any) -> str:
    """Return a value as text; quoted only where it would look the same as the other one without."""
    if value is MISSING:
        return repr(MISSING)
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


def _lines(old: str, new: str) -> str:
    before, after = old.splitlines(), new.splitlines()
    gone, come = (
        len([line for line in before if line not in after]),
        len([line for line in after if line not in before]),
    )
    return f"(text of {len(before)} lines: {gone} gone, {come} new)"
