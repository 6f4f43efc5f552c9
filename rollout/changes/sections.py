"""The consequences of a change, worst first, for both the terminal and the page for reviewers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from policies.guardrails.checking import counted as counted_findings
from stacks.definition.money import difference

from .compare import DATASETS, ObjectChange
from .report import meaning, values
from .stack_change import StackChange, alike, findings_of


@dataclass(frozen=True)
class Line:
    """One effect of a change."""

    text: str
    subject: str = ""  # Kind and name of the object.
    label: str = ""
    grave: bool = False  # Whether it is shown like a deletion.


Lines = dict[Line, list[str]]
"""Each line once, with the stacks that have it."""


def sections(changes: Sequence[StackChange]) -> dict[str, Lines]:
    """Return the lines of each section by its title, without empty sections."""

    def of_each(lines: Callable[[StackChange], Iterable[Line]]) -> Lines:
        return alike((one.name, line) for one in changes for line in lines(one))

    found = {
        "Weaker than before": of_each(lambda one: (Line(words, grave=True) for words in one.weaker)),
        "Lost by callers and teams": of_each(lambda one: (Line(words, grave=True) for words in one.permissions.lost)),
        "Deleted, replaced, no longer served": {
            line: stacks for lines in map(of_each, _DANGERS) for line, stacks in lines.items()
        },
        "Guardrails": _findings(changes),
        "Restarts": of_each(
            lambda one: (Line(str(each), f"{each.kind} {each.name}", grave=each.replaced) for each in one.restarts)
        ),
        "Other effects": of_each(lambda one: _notices(one, grave=False)),
        "Stricter, or newly offered": of_each(_offered),
        "GPU devices (autoscalers at maximum)": of_each(_devices),
        "GPU cost per month": of_each(
            lambda one: (
                [Line(f"{one.costs[0]} → {one.costs[1]} ({difference(*one.costs)})")]
                if one.costs and one.costs[0] != one.costs[1]
                else []
            )
        ),
    }
    return {title: lines for title, lines in found.items() if lines}


def _offered(one: StackChange) -> Iterator[Line]:
    of_new_models = (str(grant) for grant in one.permissions.grants if not grant.wider)
    yield from map(Line, (*one.permissions.stricter, *of_new_models))


def _devices(one: StackChange) -> Iterator[Line]:
    for each in one.devices:
        of = "" if each.there is None else f" of {each.there} on the data plane"
        if each.before != each.after:
            yield Line(f"{each.before} → {each.after}{of}", each.kind)


def _not_described(one: StackChange) -> Iterator[Line]:
    if one.stays:
        yield Line(one.stays + (f". To remove them: {one.down}" if one.down else ""), "", one.state.upper(), True)


def _datasets(one: StackChange) -> Iterator[Line]:
    for item in filter(_is_replaced_dataset, one.dangerous):
        words = "; ".join((meaning(item), *(f"{field.place} {values(field)}" for field in item.fields)))
        yield Line(words, f"{item.kind} {item.name}", "DATASET REPLACED", True)


def _objects(one: StackChange) -> Iterator[Line]:
    for item in one.dangerous:
        if not _is_replaced_dataset(item):
            yield Line(meaning(item), f"{item.kind} {item.name}", item.verb.upper(), True)


def _is_replaced_dataset(item: ObjectChange) -> bool:
    return item.verb == "replaced" and item.kind in DATASETS


def _notices(one: StackChange, *, grave: bool = True) -> Iterator[Line]:
    for each in one.notices:
        if each.grave == grave:
            yield Line(each.what, f"{each.kind} {each.name}", grave=grave)


_DANGERS = (_not_described, _datasets, _notices, _objects)
"""The order: stacks that are not described, datasets, models, all other objects."""


def _findings(changes: Sequence[StackChange]) -> Lines:
    """Return new findings, then others that stop the change, and the number of the remaining ones."""
    found = findings_of(changes)
    lines = {
        Line(
            " ".join(filter(None, (f"{each.what} ({each.rule})", each.waiver or (each.do if new else "")))),
            each.object,
            f"{'NEW ' if new else ''}{each.severity}",
            each.severity == "mandatory",
        ): stacks
        for each, new, stacks in found
        if new or each.severity == "mandatory"
    }
    if not any(change.objects for change in changes) and not lines:
        return {}
    quiet = counted_findings(each for each, new, _ in found if not new and each.severity != "mandatory")
    return {**lines, **({Line(f"as before: {quiet}"): []} if quiet else {})}
