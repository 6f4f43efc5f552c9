"""The preview as a page of Markdown, for a comment on a pull request or a job's summary."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from policies.guardrails import Finding
from policies.guardrails.findings import counted
from stacks.problems import shortened

from . import words
from .compare import DATASETS, ObjectChange
from .markdown import LIMIT, code, fitting, folded, most, preformatted, prose, size, table
from .report import WORDS, meaning, tally, values
from .secrets import hidden_by_look, hidden_text
from .stack_change import StackChange, alike, broken, verdict

_BLANKS = re.compile(r"\n{3,}")
_ALL = 10**9
_RESERVE = 1_536
"""Of a comment's length, for what whoever posts it may want to put around it."""
_LONGEST_SIGN = 6
"""What one sign of a text can become in a page: an entity such as `&#124;`, or as many bytes."""
_MOST_STACKS = 6
"""Names of stacks that a line has."""
_ORDER = ("mandatory", "advisory", "waived")
_DATASET_REPLACED = "DATASET REPLACED"
_FAILED = "**⛔ This preview failed"


@dataclass(frozen=True)
class Detail:
    """How much of each thing a page says."""

    fields: int = _ALL
    """Fields of an object."""
    objects: int = _ALL
    """Objects of a stack that are merely created or changed."""
    rows: int = _ALL
    """Restarts, devices, findings and stacks."""
    dangerous: int = _ALL
    """Deleted and replaced objects of all stacks, and models that are no longer served."""
    notes: int = 16_000
    """Bytes of foreign texts about the comparison."""


_LEVELS = (
    Detail(),
    *(Detail(fields=number, rows=60) for number in (200, 40, 12, 4, 1)),
    Detail(fields=0, objects=60, rows=60),
    Detail(fields=0, objects=12, rows=30),
    Detail(fields=0, objects=0, rows=20, dangerous=100, notes=8_000),
    Detail(fields=0, objects=0, rows=5, dangerous=20, notes=2_000),
)


def page(changes: Sequence[StackChange], subject: str, notes: Sequence[str] = (), refused: int = 0) -> str:
    """Return the page.

    `subject` says in Markdown what was compared, `notes` are foreign texts about it; `refused` counts the objects that
    the cluster would not take.
    """
    return fitting(_LEVELS, lambda detail: _page(changes, subject, notes, refused, detail), LIMIT - _RESERVE)


def failed_page(subject: str, message: str) -> str:
    """Return the page of a preview that could not be made; `message` is a foreign text, and stands there in full."""
    lines = ["**⛔ There is no preview**", "", f"{subject}:", "", _message(message, LIMIT - 2 * _RESERVE)]
    return "\n".join([*lines, "", f"{_FAILED}: nothing was compared.**", ""])


def _message(text: str, room: int) -> str:
    """Return the lines of a foreign text, as many as there is room for, in bytes."""
    lines = [hidden_text(line) for line in hidden_by_look(text).splitlines()]
    kept: list[str] = []
    for line in lines:
        room -= size(preformatted(line))
        if room < 0:
            break
        kept.append(line)
    if lines and not kept:
        kept.append(shortened(lines[0], (room + size(preformatted(lines[0]))) // _LONGEST_SIGN))
    more = len(lines) - len(kept)
    return preformatted("\n".join([*kept, *([f"… and {more} more lines"] if more else [])]))


def _page(changes: Sequence[StackChange], subject: str, notes: Sequence[str], refused: int, detail: Detail) -> str:
    lines = [f"**{_sign(changes, refused)} {verdict(changes, refused)}**", "", f"{subject}."]
    if notes:
        lines += ["", _message("\n".join(notes), detail.notes)]
    sections = {
        "Deleted, replaced, no longer served": list(_dangerous(changes, detail)),
        "Guardrails": list(_findings(changes, detail)),
        "What restarts": list(_restarts(changes, detail)),
        "Without a restart": list(_asides(changes, detail)),
        "GPU devices": list(_devices(changes, detail)),
        "Changes": list(_stacks(changes, detail)),
    }
    for title, body in sections.items():
        if body:
            lines += ["", f"#### {title}", "", *body]
    if detail != _LEVELS[0]:
        lines += [
            "",
            f"*Shortened: a comment on GitHub takes {LIMIT:,} characters. What is left out is counted above, and "
            "stands in the output of `make preview`.*",
        ]
    if mandatory := broken(changes):
        lines += ["", f"{_FAILED}: {mandatory}.**"]
    return _BLANKS.sub("\n\n", "\n".join([*lines, ""]))


def _sign(changes: Sequence[StackChange], refused: int) -> str:
    if broken(changes):
        return "⛔"
    if refused or any(change.dangerous or change.grave for change in changes):
        return "⚠️"
    return "✏️" if any(change.objects for change in changes) else "✅"


def _places(stacks: Sequence[str]) -> str:
    more = f" and {len(stacks) - _MOST_STACKS} more" if len(stacks) > _MOST_STACKS else ""
    return ", ".join(map(code, stacks[:_MOST_STACKS])) + more


def _dangerous(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    """Yield what is worst first: datasets, then models, then all other objects."""
    removed = [
        f"- **REMOVED** {code(change.name)}: it is no longer described. Its {len(change.objects)} objects stay in its "
        "cluster, and what they serve is served, until somebody takes them away"
        for change in changes
        if change.state == "removed"
    ]
    staying = [change for change in changes if change.state != "removed"]
    objects = alike((change.name, _dangerous_object(item)) for change in staying for item in change.dangerous)
    asides = alike((change.name, aside) for change in staying for aside in change.grave)
    lines = [
        (0 if verb == _DATASET_REPLACED else 2, f"- **{verb}** {_places(stacks)} {rest}")
        for (verb, rest), stacks in objects.items()
    ]
    lines += [
        (1, f"- {_places(stacks)} {code(f'{aside.kind} {aside.name}')}: **{prose(aside.what)}**")
        for aside, stacks in asides.items()
    ]
    ordered = [line for _, line in sorted(lines, key=lambda each: each[0])]
    yield from most([*removed, *ordered], detail.dangerous, lambda rest: f"- **and {rest} MORE as bad as these**")


def _dangerous_object(item: ObjectChange) -> tuple[str, str]:
    """Return what happens to an object, and which it is; of a dataset also where it leads to, before and after."""
    why = f": {prose(what)}" if (what := meaning(item)) else ""
    if item.verb != "replaced" or item.kind not in DATASETS:
        return item.verb.upper(), _named(item) + why
    fields = "".join(f"\n  - {code(field.place)} {code(values(field))}" for field in item.fields)
    return _DATASET_REPLACED, _named(item) + why + fields


def _findings(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    """Yield what is new, then what else stops the change; all that stood there before is a count to open."""
    found = alike((change.name, (each, change.is_new(each))) for change in changes for each in change.findings)
    ordered = sorted(found.items(), key=lambda item: (not item[0][1], _ORDER.index(item[0][0].severity)))
    loud = [
        f"- {'**new** ' if new else ''}{_finding(each, stacks)}"
        + (f" {prose(more)}" if (more := each.waiver or each.do) else "")
        for (each, new), stacks in ordered
        if new or each.severity == "mandatory"
    ]
    yield from most(loud, detail.rows, lambda rest: f"- **and {rest} more**")
    quiet = {each: stacks for (each, new), stacks in ordered if not new and each.severity != "mandatory"}
    mended = alike((change.name, each) for change in changes for each in change.fixed)
    counts = [f"as before: {counted(quiet)}" if quiet else "", f"{len(mended)} gone" if mended else ""]
    lines = [f"- gone: {_finding(each, stacks)}" for each, stacks in mended.items()]
    lines += [f"- {_finding(each, stacks)}" for each, stacks in quiet.items()]
    if lines:
        body = most(lines, detail.rows, lambda rest: f"- and {rest} more")
        yield from ("", *folded(", ".join(filter(None, counts)), body))


def _finding(each: Finding, stacks: Sequence[str]) -> str:
    return f"**{each.severity}** {_places(stacks)} {code(each.object)}: {prose(each.what)} {code(each.rule)}"


def _restarts(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    head = ("Stack", "Workload", "Pods", "Without a replica", "Whole update", "Models cold", "Because of")
    rows = alike(
        (
            change.name,
            (
                ("**REPLACED** " if restart.replaced else "")
                + code(f"{restart.workload.kind} {restart.workload.name}"),
                words.how(restart),
                words.without_replica(restart),
                words.whole(restart),
                words.cold(restart, code) if restart.loading else "",
                code(words.because(restart)),
            ),
        )
        for change in changes
        for restart in change.restarts
    )
    if not rows:
        if any(change.state == "changed" for change in changes):
            yield "Nothing: no pod template changes."
        return
    lines = [(_places(stacks), *row) for row, stacks in rows.items()]
    yield from table(head, lines[: detail.rows])
    if len(lines) > detail.rows:
        everything = words.restarting(restart for change in changes for restart in change.restarts)
        yield f"\n**and {len(lines) - detail.rows} more: {everything} in all**"
    yield f"\n<sub>{words.ASSUMPTIONS}</sub>"


def _asides(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    harmless = alike((change.name, aside) for change in changes for aside in change.asides if not aside.grave)
    lines = [
        f"- {_places(stacks)} {code(f'{aside.kind} {aside.name}')}: {prose(aside.what)}"
        for aside, stacks in harmless.items()
    ]
    yield from most(lines, detail.rows, lambda rest: f"- and {rest} more")


def _devices(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    """Yield what changes, with what the data plane has; what stays the same is folded away."""
    devices = alike((change.name, one) for change in changes for one in change.devices)
    for same in (False, True):
        rows = [
            (
                _places(stacks),
                code(one.kind),
                str(one.before),
                str(one.after) if same else f"**{one.after}**",
                "" if one.there is None else str(one.there),
            )
            for one, stacks in devices.items()
            if (one.before == one.after) == same
        ]
        if not rows:
            continue
        lines = table(("Stack", "Device", "Before", "After", "On its data plane"), rows[: detail.rows])
        lines += [] if len(rows) <= detail.rows else [f"\nand {len(rows) - detail.rows} more"]
        taken = sum(one.after * len(stacks) for one, stacks in devices.items() if one.before == one.after)
        yield from ("", *folded(f"unchanged: {taken}", lines)) if same else lines
    if devices:
        yield "\n<sub>Autoscalers count with their most replicas.</sub>"


def _stacks(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    seen: dict[tuple[str, ...], str] = {}
    differing = [change for change in changes if change.objects]
    for change in differing[: detail.rows]:
        body = tuple(_objects(change, detail))
        what = f"<b>{code(change.name)}</b>: {tally(change.objects)}"
        if body in seen:
            yield f"- {what} – the same as {code(seen[body])}"
            continue
        seen[body] = change.name
        yield from ("", *folded(what, body), "")
    if len(differing) > detail.rows:
        yield f"- and {len(differing) - detail.rows} more stacks"


def _objects(change: StackChange, detail: Detail) -> Iterator[str]:
    harmless = [item for item in change.objects if item.verb not in ("deleted", "replaced")]
    for item in (*change.dangerous[: detail.dangerous], *harmless[: detail.objects]):
        yield f"- **{WORDS[item.verb].strip()}** {_named(item)}"
        lines = [f"  - {code(field.place)} {code(values(field))}" for field in item.fields]
        yield from most(lines, detail.fields, lambda rest: f"  - {rest} more field{'' if rest == 1 else 's'}")
    if len(harmless) > detail.objects:
        yield f"- and {len(harmless) - detail.objects} more: {tally(harmless[detail.objects :])}"


def _named(item: ObjectChange) -> str:
    return code(f"{item.kind} {item.name}")
