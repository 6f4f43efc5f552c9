"""The steps in which an environment reaches its data planes: the canary first, alone, then wave after wave."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from stacks.command import WRONG_INPUT, CommandError, unknown
from stacks.stack import Definition, Stack


@dataclass(frozen=True)
class Step:
    """Data planes that are applied together, and the step's name."""

    title: str
    planes: list[str]


def stacks_of(definition: Definition, environment: str) -> dict[str, Stack]:
    """Return an environment's stacks by data plane, in the order of the definition. Raise CommandError for none."""
    names = [item.name for item in definition.header.environments]
    if environment not in names:
        if not environment:
            raise CommandError(f"Add an environment: --environment <name>, one of {', '.join(names)}.", WRONG_INPUT)
        raise unknown("environment", environment, names)
    found = {stack.data_plane.name: stack for stack in definition.stacks if stack.environment.name == environment}
    if not found:
        raise CommandError(f"environment {environment} is on no data plane, so there is nothing to roll out.")
    return found


def plan_of(stacks: Sequence[Stack]) -> list[Step]:
    """Return the steps for the stacks of one environment."""
    ordered = sorted(stacks, key=lambda stack: stack.data_plane.wave)
    canary = ordered[0].environment.rollout.canary or ordered[0].data_plane.name
    steps = [Step("canary", [canary])]
    for wave, together in groupby(ordered, key=lambda stack: stack.data_plane.wave):
        steps.append(
            Step(f"wave {wave}", [stack.data_plane.name for stack in together if stack.data_plane.name != canary])
        )
    return [step for step in steps if step.planes]


def backwards(steps: Sequence[Step], planes: Sequence[str]) -> list[Step]:
    """Return the steps that roll these planes back, in reverse order."""
    kept = (Step(step.title, [plane for plane in step.planes if plane in planes]) for step in reversed(steps))
    return [step for step in kept if step.planes]
