"""In which steps an environment comes to its data planes: the canary first, alone, then wave after wave."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from stacks.command import WRONG_INPUT, CommandError, unknown
from stacks.stack import Definition, Stack


@dataclass(frozen=True)
class Step:
    """Data planes that go together, and what the step is called."""

    title: str
    planes: list[str]


def stacks_of(definition: Definition, environment: str) -> dict[str, Stack]:
    """Return an environment's stacks by data plane, in the order of the definition; raise CommandError for none."""
    names = [item.name for item in definition.header.environments]
    if environment not in names:
        if not environment:
            raise CommandError(f"Which environment? --environment <name>: {', '.join(names)}.", WRONG_INPUT)
        raise unknown("environment", environment, names)
    found = {stack.data_plane.name: stack for stack in definition.stacks if stack.environment.name == environment}
    if not found:
        raise CommandError(f"environment {environment} lives on no data plane, so there is nothing to roll out.")
    return found


def plan_of(stacks: Sequence[Stack], start: str | None = None) -> tuple[list[Step], list[str]]:
    """Return the steps for the stacks of one environment, and the planes that are left out before `start`."""
    ordered = sorted(stacks, key=lambda stack: stack.data_plane.wave)
    canary = ordered[0].environment.rollout.canary or ordered[0].data_plane.name
    steps = [Step("canary", [canary])]
    for wave, together in groupby(ordered, key=lambda stack: stack.data_plane.wave):
        steps.append(
            Step(f"wave {wave}", [stack.data_plane.name for stack in together if stack.data_plane.name != canary])
        )
    steps = [step for step in steps if step.planes]
    planes = [plane for step in steps for plane in step.planes]
    if start is None:
        return steps, []
    if start not in planes:
        raise unknown(f"data plane of environment {stacks[0].environment.name} called", start, planes)
    first = planes.index(start)
    return _only(steps, planes[first:]), planes[:first]


def backwards(steps: Sequence[Step], planes: Sequence[str]) -> list[Step]:
    """Return the steps that take these planes back: the last come first."""
    return _only([*reversed(steps)], planes)


def _only(steps: Sequence[Step], planes: Sequence[str]) -> list[Step]:
    kept = (Step(step.title, [plane for plane in step.planes if plane in planes]) for step in steps)
    return [step for step in kept if step.planes]
