"""Ensembles: graphs of steps, which are models, and of tensors between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

NEWEST = -1  # The version of a step that takes whichever is the newest.


@dataclass(frozen=True)
class Step:
    """One step: a model that takes and gives tensors of the ensemble."""

    index: int
    model: str
    version: int  # NEWEST, or the only version that will do.
    inputs: tuple[tuple[str, str], ...]  # Of each: the model's name, and the ensemble's; in the order of the model's.
    outputs: tuple[tuple[str, str], ...]

    @property
    def place(self) -> str:
        """The step's place in the configuration."""
        return f"ensemble_scheduling.step[{self.index}]"

    @property
    def takes(self) -> frozenset[str]:
        """The ensemble's tensors that the step needs."""
        return frozenset(tensor for _, tensor in self.inputs)

    @property
    def gives(self) -> frozenset[str]:
        """The ensemble's tensors that it makes."""
        return frozenset(tensor for _, tensor in self.outputs)


@dataclass(frozen=True)
class Graph:
    """Steps and tensors. What is wrong with them is said by `checks.ensembles`; a graph may well be broken."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]

    @cached_property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """The steps in waves, each of which can run once those before it have; what can never run is in none."""
        waves: list[tuple[int, ...]] = []
        there, left = set(self.inputs), {step.index: step for step in self.steps}
        while wave := [step for step in left.values() if step.takes <= there]:
            waves.append(tuple(left.pop(step.index).index for step in wave))
            there.update(*(step.gives for step in wave))
        return tuple(waves)

    @cached_property
    def producers(self) -> dict[str, Step]:
        """The first step that makes each tensor; the ensemble's own inputs, and what no step makes, are not there."""
        return {tensor: step for step in reversed(self.steps) for tensor in step.gives}


def graph(config: Any) -> Graph:
    """Return the graph of an ensemble's configuration."""
    return Graph(
        tuple(tensor.name for tensor in config.input),
        tuple(tensor.name for tensor in config.output),
        tuple(
            Step(index, step.model_name, step.model_version, _sorted(step.input_map), _sorted(step.output_map))
            for index, step in enumerate(config.ensemble_scheduling.step)
        ),
    )


def _sorted(names: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(names.items()))
