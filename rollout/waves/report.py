"""What is printed before and after a rollout: its plan, where every plane stands, and how to go on."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from stacks.problems import escaped, shortened
from stacks.stack import Stack

from ..contexts import context_of
from ..terminal import make
from . import gate
from .journal import Journal, RolloutRecord
from .watch import WORDS

_LONGEST = 1_500


def plan_text(record: RolloutRecord, stacks: Mapping[str, Stack]) -> str:
    """Return the steps with their planes and gates."""
    lines = []
    for number, step in enumerate(record.steps, 1):
        lines.append(f"{number}. {step.title}")
        for plane in step.planes:
            back = f", back to rollout {record.good[plane]}" if record.kind == "back" else ""
            lines.append(f"     {plane} (context {escaped(context_of(stacks[plane].data_plane))}{back})")
        gates: dict[str, list[str]] = {}
        for plane in step.planes:
            gates.setdefault(gate.described(stacks[plane].platform.gate), []).append(plane)
        for text, planes in gates.items():
            where = "" if len(gates) == 1 else f" of {', '.join(planes)}"
            lines.append(f"     then the health gate{where}: {text}")
    if record.left_out:
        lines.append(f"Left out by FROM: {', '.join(record.left_out)}; they stay as they are.")
    return "\n".join(lines)


def table(journal: Journal, left: Sequence[str] = ()) -> Table:
    """Return where every plane stands; `left` are planes that this run leaves as they are."""
    out = Table(show_lines=True)
    for name in ("Plane", "Step", "State", "Seconds", "Engine", "What failed, and why"):
        out.add_column(name, overflow="fold")
    record = journal.record
    for step in record.steps:
        for plane in step.planes:
            status = record.planes[plane]
            # A run that is over and left a plane at work was killed.
            state = "interrupted" if status.state in ("applying", "applied") else status.state
            seconds = "" if status.seconds is None else f"{status.seconds:.1f}"
            why, log = shortened(status.message, _LONGEST), journal.log(plane)
            if why and state == "failed" and log.exists():
                why += f"\nlog: {escaped(str(log))}"
            _add(out, plane, step.title, WORDS[state], seconds, record.engine if status.attempts else "", why)
    for plane in record.left_out:
        _add(out, plane, "left out", "as it was", "", "", "")
    for plane in left:
        _add(out, plane, "left out", "as it is", "", "", "no earlier rollout of it succeeded")
    return out


def _add(out: Table, *cells: str) -> None:
    out.add_row(*map(Text, cells))


def closing(journal: Journal) -> str:
    """Return how it ended, and which command comes next."""
    record = journal.record
    what = f"Rollout {journal.number} of {record.environment}" + (
        f", which takes rollout {record.takes_back} back," if record.takes_back is not None else ""
    )
    passed = sum(status.state == "passed" for status in record.planes.values())
    if record.outcome == "succeeded":
        return f"{what} succeeded: {passed} of {len(record.planes)} planes passed."

    def command(**settings: object) -> str:
        return make("rollout", ENV=record.environment, **settings, DEFINITION=record.definition)

    verb = "failed" if record.outcome == "failed" else "was stopped"
    lines = [f"{what} {verb}: {passed} of {len(record.planes)} planes passed. Next:"]
    lines.append(f"  {command(RESUME=1)}   goes on with the same texts, with the planes that have not passed")
    if record.kind == "forward":
        able = [plane for plane in record.touched if plane in record.good]
        if able:
            lines.append(f"  {command(BACK=1)}   brings {', '.join(able)} back to what was good before")
        lines.append(f"  {command()}   begins anew, with the definition as it is then")
    return "\n".join(lines)
