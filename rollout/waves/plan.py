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
    planes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The steps of a rollout, and the planes that it leaves out because it starts after them."""

    steps: tuple[Step, ...]
    left_out: tuple[str, ...] = ()

    @property
    def planes(self) -> tuple[str, ...]:
        """Every plane of the plan, in order."""
        return tuple(plane for step in self.steps for plane in step.planes)


def stacks_of(definition: Definition, environment: str) -> dict[str, Stack]:
    """Return an environment's stacks by data plane, in the order of the definition's waves."""
    names = [item.name for item in definition.header.environments]
    if environment not in names:
        if not environment:
            raise CommandError(f"Which environment? ENV=<name>: {', '.join(names)}.", WRONG_INPUT)
        raise unknown("environment", environment, names)
    found = {stack.data_plane.name: stack for stack in definition.stacks if stack.environment.name == environment}
    if not found:
        raise CommandError(f"environment {environment} lives on no data plane, so there is nothing to roll out.")
    return found


def plan_of(stacks: Sequence[Stack], start: str | None = None) -> Plan:
    """Return the steps for the stacks of one environment; `start` is the plane to begin with."""
    steps = _steps(stacks)
    planes = [plane for step in steps for plane in step.planes]
    if start is None:
        return Plan(tuple(steps))
    if start not in planes:
        raise unknown(f"data plane of environment {stacks[0].environment.name} called", start, planes)
    left_out = planes[: planes.index(start)]
    kept = (Step(step.title, tuple(plane for plane in step.planes if plane not in left_out)) for step in steps)
    return Plan(tuple(step for step in kept if step.planes), tuple(left_out))


def backwards(steps: Sequence[Step], planes: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that take these planes back: the last come first."""
    kept = (Step(step.title, tuple(plane for plane in step.planes if plane in planes)) for step in reversed(steps))
    return tuple(step for step in kept if step.planes)


def _steps(stacks: Sequence[Stack]) -> list[Step]:
    ordered = sorted(stacks, key=lambda stack: stack.data_plane.wave)
    canary = ordered[0].environment.rollout.canary or ordered[0].data_plane.name
    steps = [Step("canary", (canary,))]
    for wave, together in groupby(ordered, key=lambda stack: stack.data_plane.wave):
        planes = tuple(stack.data_plane.name for stack in together if stack.data_plane.name != canary)
        if planes:
            steps.append(Step(f"wave {wave}", planes))
    return steps
