"""What people read before and after a rollout: its plan, where every plane stands, and how to go on."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from stacks.definition.rollout import Gate
from stacks.problems import escaped, shortened
from stacks.stack import Stack

from ..contexts import context_of
from ..terminal import make
from . import gate
from .history import Past
from .journal import Begin, Standing, Story
from .watch import WORDS

_LONGEST = 1_500


def plan_text(begin: Begin, stacks: Mapping[str, Stack]) -> str:
    """Return the steps with their planes and gates."""
    lines = []
    for number, step in enumerate(begin.steps, 1):
        lines.append(f"{number}. {step.title}")
        for plane in step.planes:
            back = f", back to rollout {begin.good[plane]}" if begin.kind == "back" else ""
            lines.append(f"     {plane} (context {escaped(context_of(stacks[plane].data_plane))}{back})")
        gates: dict[str, list[str]] = {}
        for plane in step.planes:
            gates.setdefault(gate.words(_gate(stacks[plane])), []).append(plane)
        for words, planes in gates.items():
            where = "" if len(gates) == 1 else f" of {', '.join(planes)}"
            lines.append(f"     then the health gate{where}: {words}")
    if begin.left_out:
        lines.append(f"Left out by FROM: {', '.join(begin.left_out)}; they stay as they are.")
    return "\n".join(lines)


def _gate(stack: Stack) -> Gate:
    return stack.platform.gate


def table(past: Past, story: Story, left: Sequence[str] = ()) -> Table:
    """Return where every plane stands; `left` are planes that this run leaves as they are."""
    out = Table(show_lines=True)
    for name in ("Plane", "Step", "State", "Seconds", "Engine", "What failed, and why"):
        out.add_column(name, overflow="fold")
    for step in story.begin.steps:
        for plane in step.planes:
            standing = story.planes[plane]
            seconds = "" if standing.seconds is None else f"{standing.seconds:.1f}"
            engine = story.begin.engine if standing.began else ""
            cells = (plane, step.title, _state(standing), seconds, engine, _why(standing, past.log(plane)))
            out.add_row(*map(Text, cells))
    for plane in story.begin.left_out:
        out.add_row(*map(Text, (plane, "left out", "as it was", "", "", "")))
    for plane in left:
        out.add_row(*map(Text, (plane, "left out", "as it is", "", "", "no earlier rollout of it succeeded")))
    return out


def _state(standing: Standing) -> str:
    if standing.state in ("applying", "applied"):  # a run that is over left it there: it was killed
        return WORDS["interrupted"]
    return WORDS[standing.state]


def _why(standing: Standing, log: Path) -> str:
    if not standing.message:
        return ""
    text = shortened(standing.message, _LONGEST)
    return text + (f"\nlog: {escaped(str(log))}" if standing.state == "failed" and log.exists() else "")


def closing(past: Past, story: Story) -> str:
    """Return how it ended, and which command comes next."""
    begin = story.begin
    what = f"Rollout {past.number} of {begin.environment}" + (
        f", which takes rollout {begin.takes_back} back," if begin.takes_back is not None else ""
    )
    settings = {"ENV": begin.environment}
    resume = make("rollout", **settings, RESUME=1, DEFINITION=begin.definition)
    back = make("rollout", **settings, BACK=1, DEFINITION=begin.definition)
    anew = make("rollout", **settings, DEFINITION=begin.definition)
    passed = sum(standing.state == "passed" for standing in story.planes.values())
    if story.outcome == "succeeded":
        return f"{what} succeeded: {passed} of {len(story.planes)} planes passed."
    verb = "failed" if story.outcome == "failed" else "was stopped"
    lines = [f"{what} {verb}: {passed} of {len(story.planes)} planes passed. Next:"]
    lines.append(f"  {resume}   goes on with the same texts, with the planes that have not passed")
    if begin.kind == "forward":
        able = [plane for plane in story.touched if plane in begin.good]
        if able:
            lines.append(f"  {back}   brings {', '.join(able)} back to what was good before")
        lines.append(f"  {anew}   begins anew, with the definition as it is then")
    return "\n".join(lines)
