"""The output of a rollout: its plan, progress, final table, and the next commands."""

import time
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from stacks.command import tidegate
from stacks.definition.rollout import Gate
from stacks.problems import escaped, shortened
from stacks.stack import Stack

from ..terminal import note
from .journal import Journal, RolloutRecord
from .plan import Step

_EVERY_SECONDS = 10.0  # How often a plain line repeats what a plane is waiting for.
_LONGEST = 1_500
WORDS = {
    "waiting": "not started",
    "applying": "being applied",
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
    """Return the conditions of a gate in one line."""
    parts = ["workloads available", "proxy ready"]
    if gate.probe is not None:
        way = gate.probe.url if gate.probe.kind == "url" else f"{gate.probe.path} by {gate.probe.kind}"
        parts.append(f"probe {way} passes")
    if gate.alerts is not None:
        service = gate.alerts.service
        parts.append(f"no alert at {f'{service.namespace}/{service.name}' if service else gate.alerts.url}")
    return f"{', '.join(parts)}, for {gate.settle_seconds} s, within {gate.timeout_seconds} s"


def table(journal: Journal, left: Sequence[str] = ()) -> Table:
    """Return a table of the planes' states. `left` are planes that this run does not touch."""
    record = journal.record
    rows = []
    for title, plane in ((step.title, plane) for step in record.steps for plane in step.planes):
        status, log = record.planes[plane], journal.log(plane)
        # After the run, a plane that is still being applied was killed.
        state = "interrupted" if status.state in ("applying", "applied") else status.state
        seconds = "" if status.seconds is None else f"{status.seconds:.1f}"
        why = shortened(status.message, _LONGEST)
        if why and state == "failed" and log.exists():
            why += f"\nlog: {escaped(str(log))}"
        rows.append((plane, title, WORDS[state], seconds, record.engine if status.attempts else "", why))
    rows += [(plane, "left out", "unchanged", "", "", "no earlier rollout of it succeeded") for plane in left]
    out = Table(show_lines=True)
    for name in ("Plane", "Step", "State", "Seconds", "Engine", "Failure"):
        out.add_column(name, overflow="fold")
    for row in rows:
        out.add_row(*map(Text, row))
    return out


def closing(journal: Journal) -> str:
    """Return how the rollout ended, and the next commands."""
    record = journal.record
    what = f"Rollout {journal.number} of {record.environment}" + (
        f", which rolls back rollout {record.takes_back}," if record.takes_back is not None else ""
    )
    passed = sum(status.state == "passed" for status in record.planes.values())
    if record.outcome == "succeeded":
        return f"{what} succeeded: {passed} of {len(record.planes)} planes passed."

    def command(**switches: bool) -> str:
        return tidegate("rollout", record.definition, environment=record.environment, **switches)

    verb = "failed" if record.outcome == "failed" else "was stopped"
    lines = [
        f"{what} {verb}: {passed} of {len(record.planes)} planes passed. Next:",
        f"  {command(resume=True)}   continues with the same texts and the planes that have not passed",
    ]
    if record.kind == "forward":
        able = [plane for plane in record.touched if plane in record.good]
        if able:
            lines.append(f"  {command(back=True)}   rolls {', '.join(able)} back to the last good texts")
        lines.append(f"  {command()}   starts again, with the present definition")
    return "\n".join(lines)


class Lines:
    """A line for each change of state, and every ten seconds one for what a plane waits for."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[str, float]] = {}

    def step(self, step: Step, number: int, of: int) -> None:
        """Print the planes of a step: `Step 2 of 3, wave 1: west, north`."""
        note(f"Step {number} of {of}, {step.title}: {', '.join(step.planes)}")

    def state(self, plane: str, state: str, text: str = "") -> None:
        self._shown.pop(plane, None)
        note(f"[{plane}] {WORDS[state]}{f': {text}' if text else ''}")

    def output(self, plane: str, text: str) -> None:
        """Print what a plane waits for, from a line of its engine's output. The log has all of them."""
        before, when = self._shown.get(plane, ("", 0.0))
        now = time.monotonic()
        if text.startswith("waiting: ") and text != before and now - when >= _EVERY_SECONDS:
            self._shown[plane] = text, now
            note(f"[{plane}] {text}")
