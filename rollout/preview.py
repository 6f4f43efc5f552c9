"""`preview`: what would change, against the last rendering, a git revision or a cluster. No cluster is touched.

Against a revision or a cluster, what is said goes to a page of Markdown too, for whoever reviews the change.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from policies.guardrails import check_all
from stacks.command import WRONG_INPUT, CommandError
from stacks.devices import inventory
from stacks.problems import DefinitionError, counted, escaped
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from .changes.markdown import code
from .changes.page import failed_page, page
from .changes.report import report, total
from .changes.stack_change import StackChange, stack_change
from .changes.terminal_summary import terminal_summary
from .comparison import Comparison, Wanted, compared
from .files import write_atomically
from .guardrails import eased, enforce, findings
from .render import Rendered
from .terminal import console, note

MOST_FIELDS = 40


def preview_changes(wanted: Wanted) -> None:
    """Say what would change in every stack, or in one of them; raise CommandError where a mandatory rule is broken."""
    if wanted.base is not None and wanted.cluster is not None:
        raise CommandError("BASE and CLUSTER cannot stand together: compare with one of them.", WRONG_INPUT)
    writes = wanted.base is not None or wanted.cluster is not None
    if writes:  # nobody shall take an old page for this one, nor miss that this one did not come to its end
        _write(wanted.summary, failed_page(code(str(wanted.definition)), "The preview was begun, and did not end."))
    try:
        definition = read_definition(wanted.definition)
        rendering, comparison = compared(wanted, definition)
    except (DefinitionError, CommandError) as error:
        if writes:
            what = "is wrong" if isinstance(error, DefinitionError) else "could not be compared"
            _write(wanted.summary, failed_page(f"{code(str(wanted.definition))} {what}", str(error)))
        raise
    changes = _stack_changes(wanted, definition, rendering, comparison)
    if writes:
        subject = _subject(wanted, comparison)
        _write(wanted.summary, page(changes, subject, comparison.notes, refused=comparison.refused))
    _say(comparison, changes)
    if writes:
        note(f"written for reviewers: {escaped(str(wanted.summary))}")
    enforce(rendering, definition, outcome="nothing was changed", local_cluster=wanted.is_local)


def _stack_changes(
    wanted: Wanted, definition: Definition, rendering: Sequence[Rendered], comparison: Comparison
) -> list[StackChange]:
    local = wanted.is_local
    today = datetime.now(UTC).date()
    found = findings(rendering, definition, today)
    if wanted.cluster is None:
        before = {name: list(objects) for name, objects in comparison.before.items() if objects is not None}
        known = check_all(before, today)
    else:
        known = found  # rules judge what is declared: in live objects stand defaults and autoscalers' numbers too
    there = {stack.name: _there(stack) for stack in definition.stacks}
    return [
        stack_change(
            name,
            comparison.changes.get(name, ()),
            comparison.before[name] if name in comparison.changes else (),
            comparison.after[name] if name in comparison.changes else (),
            there=there.get(name),
            findings=[eased(one) if local else one for one in found.get(name, ())],
            known=[eased(one) if local else one for one in known.get(name, ())],
        )
        # A stack that nobody asked for is said where one of those that are asked for breaks something in it.
        for name in {**comparison.changes, **found}
    ]


def _there(stack: Stack) -> Mapping[str, int] | None:
    """Return the devices of a stack's data plane by kind; None where they are not declared."""
    counts: Counter[str] = Counter()
    for (device, _), count in inventory(stack.data_plane.gpus).items():
        counts[str(device)] += count
    return counts or None


def _say(comparison: Comparison, changes: Sequence[StackChange]) -> None:
    screen = console()
    screen.print(f"Against {comparison.against}:", soft_wrap=True)
    for text in (report(comparison.changes, fields=MOST_FIELDS), terminal_summary(changes)):
        if text:
            screen.print(text, soft_wrap=True)
    nothing = f"Nothing would change in {counted(comparison.changes, 'stack')}."
    screen.print(total(comparison.changes) or nothing)


def _subject(wanted: Wanted, comparison: Comparison) -> str:
    against = code(wanted.base) if wanted.base is not None else f"the cluster {code(wanted.cluster or '')}"
    commit = f" ({code(comparison.commit[:10])})" if comparison.commit else ""
    how = ", without any cluster" if wanted.base is not None else ""
    return f"Tidegate's preview of {code(str(wanted.definition))} against {against}{commit}{how}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
