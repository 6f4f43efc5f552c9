"""What people see of a rollout: its plan, how planes fare meanwhile, where they stand in the end, and how to go on."""

import time
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from stacks.definition.rollout import Gate
from stacks.problems import escaped, shortened
from stacks.stack import Stack

from ..terminal import note, tidegate
from .journal import Journal, RolloutRecord
from .plan import Step

_EVERY_SECONDS = 10.0  # How often a plain line repeats what a plane is waiting for.
_LONGEST = 1_500
WORDS = {
    "waiting": "not begun",
    "applying": "being brought up",
    "applied": "at its health gate",
    "passed": "passed",
    "failed": "FAILED",
    "interrupted": "interrupted",
}


def plan_text(record: RolloutRecord, stacks: Mapping[str, Stack]) -> str:
    """Return the steps with their planes and gates."""
    lines = []
    for number, step in enumerate(record.steps, 1):
        lines.append(f"{number}. {step.title}")
        for plane in step.planes:
            back = f", back to rollout {record.good[plane]}" if record.kind == "back" else ""
            lines.append(f"     {plane} (context {escaped(stacks[plane].data_plane.context_name)}{back})")
        gates: dict[str, list[str]] = {}
        for plane in step.planes:
            gates.setdefault(described(stacks[plane].platform.gate), []).append(plane)
        for text, planes in gates.items():
            where = "" if len(gates) == 1 else f" of {', '.join(planes)}"
            lines.append(f"     then the health gate{where}: {text}")
    return "\n".join(lines)


def described(gate: Gate) -> str:
    """Return what a gate asks for, in a line."""
    parts = ["workloads available", "proxy ready"]
    if gate.probe is not None:
        way = gate.probe.url if gate.probe.kind == "url" else f"{gate.probe.path} by {gate.probe.kind}"
        parts.append(f"probe {way} answered")
    if gate.alerts is not None:
        service = gate.alerts.service
        parts.append(f"no alert at {f'{service.namespace}/{service.name}' if service else gate.alerts.url}")
    return f"{', '.join(parts)}; for {gate.settle_seconds} s, within {gate.timeout_seconds} s"


def table(journal: Journal, left: Sequence[str] = ()) -> Table:
    """Return where every plane stands; `left` are planes that this run leaves as they are."""
    record = journal.record
    rows = []
    for title, plane in ((step.title, plane) for step in record.steps for plane in step.planes):
        status, log = record.planes[plane], journal.log(plane)
        # A run that is over and left a plane at work was killed.
        state = "interrupted" if status.state in ("applying", "applied") else status.state
        seconds = "" if status.seconds is None else f"{status.seconds:.1f}"
        why = shortened(status.message, _LONGEST)
        if why and state == "failed" and log.exists():
            why += f"\nlog: {escaped(str(log))}"
        rows.append((plane, title, WORDS[state], seconds, record.engine if status.attempts else "", why))
    rows += [(plane, "left out", "as it is", "", "", "no earlier rollout of it succeeded") for plane in left]
    out = Table(show_lines=True)
    for name in ("Plane", "Step", "State", "Seconds", "Engine", "What failed, and why"):
        out.add_column(name, overflow="fold")
    for row in rows:
        out.add_row(*map(Text, row))
    return out


def closing(journal: Journal) -> str:
    """Return how it ended, and which command comes next."""
    record = journal.record
    what = f"Rollout {journal.number} of {record.environment}" + (
        f", which takes rollout {record.takes_back} back," if record.takes_back is not None else ""
    )
    passed = sum(status.state == "passed" for status in record.planes.values())
    if record.outcome == "succeeded":
        return f"{what} succeeded: {passed} of {len(record.planes)} planes passed."

    def command(**switches: bool) -> str:
        return tidegate("rollout", record.definition, environment=record.environment, **switches)

    verb = "failed" if record.outcome == "failed" else "was stopped"
    lines = [
        f"{what} {verb}: {passed} of {len(record.planes)} planes passed. Next:",
        f"  {command(resume=True)}   goes on with the same texts, with the planes that have not passed",
    ]
    if record.kind == "forward":
        able = [plane for plane in record.touched if plane in record.good]
        if able:
            lines.append(f"  {command(back=True)}   brings {', '.join(able)} back to what was good before")
        lines.append(f"  {command()}   begins anew, with the definition as it is then")
    return "\n".join(lines)


# ---- meanwhile ----


class Lines:
    """A line for each change, and now and then one for what is being waited for."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, float]] = {}

    def step(self, step: Step, number: int, of: int) -> None:
        """Say which planes go now: `Step 2 of 3, wave 1: west, north`."""
        note(f"Step {number} of {of}, {step.title}: {', '.join(step.planes)}")

    def state(self, plane: str, state: str, text: str = "") -> None:
        """Say where a plane stands now."""
        self._said.pop(plane, None)
        note(f"[{plane}] {WORDS[state]}{f': {text}' if text else ''}")

    def says(self, plane: str, text: str) -> None:
        """Repeat what is being waited for; what an engine says stands in its log."""
        before, when = self._said.get(plane, ("", 0.0))
        now = time.monotonic()
        if text.startswith("waiting: ") and text != before and now - when >= _EVERY_SECONDS:
            self._said[plane] = text, now
            note(f"[{plane}] {text}")
