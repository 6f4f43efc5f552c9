"""An ensemble as a graph: steps, which are models, and tensors between them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

NEWEST = -1
"""The version of a step that takes whichever is the newest."""


@dataclass(frozen=True)
class Step:
    """One step: a model that takes and gives tensors of the ensemble."""

    index: int
    model: str
    version: int
    """NEWEST, or the only version that will do."""
    inputs: tuple[tuple[str, str], ...]
    """Of each: the model's name for it, and the ensemble's; in the order of the model's."""
    outputs: tuple[tuple[str, str], ...]

    @property
    def takes(self) -> frozenset[str]:
        """The ensemble's tensors that it needs."""
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
        """The steps in waves: those of a wave can run together, after the waves before it.

        A step that waits for a tensor that nobody makes, or for itself, is in none of them.
        """
        waves: list[tuple[int, ...]] = []
        there, waiting = set(self.inputs), set(self.steps)
        while wave := [step for step in waiting if step.takes <= there]:
            waves.append(tuple(sorted(step.index for step in wave)))
            waiting.difference_update(wave)
            there.update(*(step.gives for step in wave))
        return tuple(waves)

    def producer(self, tensor: str) -> Step | None:
        """Return the first step that makes a tensor; None for the ensemble's own inputs, and where nobody does."""
        return next((step for step in self.steps if tensor in step.gives), None)

    def consumers(self, tensor: str) -> tuple[Step, ...]:
        """Return the steps that need a tensor."""
        return tuple(step for step in self.steps if tensor in step.takes)


def graph(config: Any) -> Graph:
    """Return the graph of an ensemble's configuration."""
    return Graph(
        tuple(tensor.name for tensor in config.input),
        tuple(tensor.name for tensor in config.output),
        tuple(
            Step(
                index,
                step.model_name,
                step.model_version,
                tuple(sorted(step.input_map.items())),
                tuple(sorted(step.output_map.items())),
            )
            for index, step in enumerate(config.ensemble_scheduling.step)
        ),
    )
