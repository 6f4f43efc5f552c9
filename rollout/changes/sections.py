"""What a change means for its readers, worst first: the one model that the terminal and the page for reviewers show."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from policies.guardrails.checking import counted as counted_findings
from stacks.definition.money import difference

from .compare import DATASETS, ObjectChange
from .report import meaning, values
from .stack_change import StackChange, alike, findings_of


@dataclass(frozen=True)
class Line:
    """One effect of a change, and the stacks that have it."""

    stacks: tuple[str, ...]
    text: str
    subject: str = ""  # Kind and name of what it concerns.
    label: str = ""
    grave: bool = False  # Whether reviewers must see it as they see a deletion.


Part = tuple[str, str, str, bool]  # A line's label, subject and text, and whether it is grave.


def sections(changes: Sequence[StackChange]) -> dict[str, list[Line]]:
    """Return the lines of each section by its title, without sections that have none."""
    found = {
        "Weaker than before": _lines(
            (one.name, ("", "", words, True))
            for one in changes
            for words in (
                *one.permissions.weaker,
                *(f"newly lets {each.who} {each.action}: {each.models}" for each in one.permissions.grants),
            )
        ),
        "What callers and teams lose": _lines(
            (one.name, ("", "", words, True)) for one in changes for words in one.permissions.lost
        ),
        "Deleted, replaced, no longer served": _dangerous(changes),
        "Guardrails": _findings(changes),
        "What restarts": _lines(
            (one.name, ("", f"{each.kind} {each.name}", str(each), each.replaced))
            for one in changes
            for each in one.restarts
        ),
        "Other effects": _notices(changes, grave=False),
        "Stricter, or newly offered": _lines(
            (one.name, ("", "", words, False)) for one in changes for words in one.permissions.stricter
        ),
        "GPU devices, autoscalers at their most": _lines(
            (one.name, ("", each.kind, f"{each.before} → {each.after}{of}", False))
            for one in changes
            for each in one.devices
            if each.before != each.after
            for of in ("" if each.there is None else f" of {each.there} on the data plane",)
        ),
        "GPUs a month": _lines(
            (one.name, ("", "", f"{one.costs[0]} → {one.costs[1]} ({difference(*one.costs)})", False))
            for one in changes
            if one.costs and one.costs[0] != one.costs[1]
        ),
    }
    return {title: lines for title, lines in found.items() if lines}


def _lines(parts: Iterable[tuple[str, Part]]) -> list[Line]:
    return [
        Line(tuple(stacks), text, subject, label, grave)
        for (label, subject, text, grave), stacks in alike(parts).items()
    ]


def _dangerous(changes: Sequence[StackChange]) -> list[Line]:
    """Return stacks that are not described, then datasets, then models, and all other objects."""
    gone = _lines(
        (one.name, (one.state.upper(), "", one.stays + (f". To take it down: {one.down}" if one.down else ""), True))
        for one in changes
        if one.stays
    )
    objects = [(one.name, item) for one in changes if one.state != "removed" for item in one.dangerous]
    replaced, others = (
        _lines((stack, _object(item)) for stack, item in objects if _is_replaced_dataset(item) == wanted)
        for wanted in (True, False)
    )
    return [*gone, *replaced, *_notices(changes, grave=True), *others]


def _is_replaced_dataset(item: ObjectChange) -> bool:
    return item.verb == "replaced" and item.kind in DATASETS


def _object(item: ObjectChange) -> Part:
    """Return what happens to an object, and which it is; of a dataset also where it leads to, before and after."""
    words, label = [meaning(item)], item.verb.upper()
    if _is_replaced_dataset(item):
        words, label = [*words, *(f"{field.place} {values(field)}" for field in item.fields)], "DATASET REPLACED"
    return label, f"{item.kind} {item.name}", "; ".join(filter(None, words)), True


def _notices(changes: Sequence[StackChange], *, grave: bool) -> list[Line]:
    return _lines(
        (one.name, ("", f"{each.kind} {each.name}", each.what, grave))
        for one in changes
        for each in one.notices
        if each.grave == grave
    )


def _findings(changes: Sequence[StackChange]) -> list[Line]:
    """Return what is new, then what else stops the change; of all that was there before a count."""
    found = findings_of(changes)
    lines = [
        Line(
            tuple(stacks),
            " ".join(filter(None, (f"{each.what} ({each.rule})", each.waiver or (each.do if new else "")))),
            each.object,
            f"{'NEW ' if new else ''}{each.severity}",
            each.severity == "mandatory",
        )
        for each, new, stacks in found
        if new or each.severity == "mandatory"
    ]
    if not any(change.objects for change in changes) and not lines:
        return []
    quiet = counted_findings(each for each, new, _ in found if not new and each.severity != "mandatory")
    fixed = len({each for change in changes for each in change.fixed})
    counts = [f"as before: {quiet}" if quiet else "", f"{fixed} of before no longer there" if fixed else ""]
    return [*lines, *(Line((), words) for words in counts if words)]
