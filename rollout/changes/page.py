"""The preview as a page of Markdown, for a comment on a pull request or a job's summary."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stacks.problems import shortened

from . import words
from .compare import ObjectChange
from .markdown import LIMIT, code, fitting, folded, most, preformatted, prose, table
from .report import WORDS, tally, values, why_replaced
from .secrets import hidden_by_look, hidden_text
from .stack_change import StackChange, verdict

_BLANKS = re.compile(r"\n{3,}")
_ALL = 10**9
_RESERVE = 1_536
"""Of a comment's length, for what whoever posts it may want to put around it."""
_MOST_LINES, _LONGEST_LINE = 40, 200
"""Of an error message: even all punctuation, which is written as entities, it fits a comment."""


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
    """Deleted and replaced objects of all stacks."""


_LEVELS = (
    Detail(),
    *(Detail(fields=number, rows=60) for number in (200, 40, 12, 4, 1)),
    Detail(fields=0, objects=60, rows=60),
    Detail(fields=0, objects=12, rows=30),
    Detail(fields=0, objects=0, rows=20, dangerous=100),
    Detail(fields=0, objects=0, rows=5, dangerous=20),
)


def page(changes: Sequence[StackChange], subject: str, notes: Sequence[str] = (), limit: int = LIMIT) -> str:
    """Return the page; `subject` says in Markdown what was compared, `notes` are foreign texts about it."""
    return fitting(_LEVELS, lambda detail: _page(changes, subject, notes, detail), limit - _RESERVE)


def failed_page(subject: str, message: str) -> str:
    """Return the page of a preview that could not be made."""
    return "\n".join(["**⛔ There is no preview**", "", f"{subject}:", "", _message(message), ""])


def _message(text: str) -> str:
    lines = [shortened(hidden_text(line), _LONGEST_LINE) for line in hidden_by_look(text).splitlines()]
    return preformatted("\n".join(most(lines, _MOST_LINES, lambda rest: f"… and {rest} more lines")))


def _page(changes: Sequence[StackChange], subject: str, notes: Sequence[str], detail: Detail) -> str:
    lines = [f"**{_sign(changes)} {verdict(changes)}**", "", f"{subject}."]
    for note in notes:
        lines += ["", _message(note)]
    sections = {
        "Deleted and replaced": list(_dangerous(changes, detail)),
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
    return _BLANKS.sub("\n\n", "\n".join([*lines, ""]))


def _sign(changes: Sequence[StackChange]) -> str:
    if any(finding.severity == "mandatory" for change in changes for finding in change.findings):
        return "⛔"
    if any(change.dangerous for change in changes):
        return "⚠️"
    return "✏️" if any(change.objects for change in changes) else "✅"


def _dangerous(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    lines = []
    for verb in ("deleted", "replaced"):
        for change in changes:
            for item in change.dangerous:
                if item.verb == verb:
                    why = f": {prose(why_replaced(item))}" if item.reasons else ""
                    lines.append(f"- **{verb.upper()}** {code(change.name)} {_named(item)}{why}")
    yield from most(lines, detail.dangerous, lambda rest: f"- **and {rest} MORE that are deleted or replaced**")


def _findings(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    loud: list[str] = []
    quiet: list[str] = []
    for change in changes:
        for finding in change.findings:
            new = change.is_new(finding)
            line = (
                f"- {'**new** ' if new else ''}**{finding.severity}** {code(change.name)} {code(finding.object)}: "
                f"{prose(finding.what)} {code(finding.rule)}"
            )
            remedy = f"\n  {prose(finding.do)}" if finding.do and (new or finding.severity == "mandatory") else ""
            (loud if new or finding.severity == "mandatory" else quiet).append(line + remedy)
    yield from most(loud, detail.rows, lambda rest: f"- **and {rest} more**")
    fixed = [
        f"- gone: {code(change.name)} {code(finding.object)} {code(finding.rule)}"
        for change in changes
        for finding in change.fixed
    ]
    yield from most(fixed, detail.rows, lambda rest: f"- and {rest} more that are gone")
    if quiet:
        title = f"{len(quiet)} as before, advisory or waived"
        yield from (["", *folded(title, most(quiet, detail.rows, lambda rest: f"- and {rest} more"))])


def _restarts(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    head = ("Stack", "Workload", "Pods", "Without a replica", "Whole update", "Models cold", "Because of")
    rows = [
        (
            code(change.name),
            ("**REPLACED** " if restart.replaced else "") + code(f"{restart.workload.kind} {restart.workload.name}"),
            words.how(restart),
            words.without_replica(restart),
            words.whole(restart),
            words.cold(restart) if restart.loading else "",
            code(words.because(restart)),
        )
        for change in changes
        for restart in change.restarts
    ]
    if not rows:
        if any(change.state == "changed" for change in changes):
            yield "Nothing: no pod template changes."
        return
    yield from table(head, rows[: detail.rows])
    if len(rows) > detail.rows:
        everything = words.restarting(restart for change in changes for restart in change.restarts)
        yield f"\n**and {len(rows) - detail.rows} more: {everything} in all**"
    yield f"\n<sub>{words.ASSUMPTIONS}</sub>"


def _asides(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    lines = [
        f"- {code(change.name)} {code(f'{aside.kind} {aside.name}')}: {prose(aside.what)}"
        for change in changes
        for aside in change.asides
    ]
    yield from most(lines, detail.rows, lambda rest: f"- and {rest} more")


def _devices(changes: Sequence[StackChange], detail: Detail) -> Iterator[str]:
    rows = [
        (
            code(change.name),
            code(one.kind),
            str(one.before),
            str(one.after) if one.before == one.after else f"**{one.after}**",
            "" if one.there is None else str(one.there),
        )
        for change in changes
        for one in change.devices
    ]
    if rows:
        rows.sort(key=lambda row: not row[3].startswith("**"))  # those that change first
        yield from table(("Stack", "Device", "Before", "After", "On its data plane"), rows[: detail.rows])
        yield "" if len(rows) <= detail.rows else f"\nand {len(rows) - detail.rows} more"
        yield "<sub>Autoscalers count with their most replicas.</sub>"


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
