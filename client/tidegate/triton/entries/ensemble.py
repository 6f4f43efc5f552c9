"""Ensembles: graphs of steps, which are models, and of tensors between them; made by chaining entries."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...errors import UsageError
from .entry import read_entry
from .frameworks.reading import ANY, Reading

KEEP = ".keep"  # The version's folder must be there, and folders without files do not survive artifact stores and git.
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
        there = set(self.inputs)
        takers: dict[str, list[Step]] = {}
        lacking: dict[int, int] = {}
        for step in self.steps:
            wanted = step.takes - there
            lacking[step.index] = len(wanted)
            for tensor in wanted:
                takers.setdefault(tensor, []).append(step)
        wave = [step for step in self.steps if not lacking[step.index]]
        while wave:
            waves.append(tuple(sorted(step.index for step in wave)))
            new = {tensor for step in wave for tensor in step.gives} - there
            there |= new
            wave = []
            for step in (step for tensor in new for step in takers.get(tensor, ())):
                lacking[step.index] -= 1
                if not lacking[step.index]:
                    wave.append(step)
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


def chain(sources: Sequence[Path], links: Mapping[str, str] | None = None) -> Reading:
    """Chain the entries in these folders, in this order, into an ensemble.

    A step's input is fed by the output of an earlier step that has its name, else it is an input of the ensemble; an
    output that no later step takes is one of the ensemble's. `links` give tensors other names: `model.tensor` to the
    name within the ensemble. Optional inputs that no step feeds are left out, unless linked. Raises UsageError where
    the tensors do not fit.
    """
    configs = [_config(source) for source in sources]
    names = dict(links or {})
    batch = min(config.max_batch_size for config in configs)
    ensemble = ModelConfig(platform="ensemble", max_batch_size=batch)
    made: dict[str, tuple[str, Any, int]] = {}
    entrances: dict[str, tuple[str, Any, int]] = {}
    taken: set[str] = set()
    for config in configs:
        step = ensemble.ensemble_scheduling.step.add(model_name=config.name, model_version=-1)
        for tensor in config.input:
            link = names.pop(f"{config.name}.{tensor.name}", None)
            name = link or tensor.name
            if tensor.optional and link is None and name not in made:
                continue
            step.input_map[tensor.name] = name
            taken.add(name)
            if name not in made:
                _same(name, (config.name, tensor, config.max_batch_size), entrances)
        for tensor in config.output:
            name = names.pop(f"{config.name}.{tensor.name}", tensor.name)
            if name in made or name in entrances:
                first = made.get(name) or entrances[name]
                what = f"{config.name} makes a tensor {name!r}, which is there already, of {first[0]}"
                raise UsageError(what, do=f"give it another name: --link {config.name}.{tensor.name}=NAME")
            step.output_map[tensor.name] = name
            made[name] = (config.name, tensor, config.max_batch_size)
    if names:
        known = [f"{config.name}.{tensor.name}" for config in configs for tensor in (*config.input, *config.output)]
        near = get_close_matches(sorted(names)[0], known, 1)
        do = (f"did you mean {near[0]}? " if near else "") + f"There are {', '.join(known)}; --link MODEL.TENSOR=NAME"
        raise UsageError(f"nothing is called {', '.join(sorted(names))}", do=do)
    for side, tensors in ((ensemble.input, entrances), (ensemble.output, made)):
        for name, (_, tensor, its_batch) in tensors.items():
            if tensors is made and name in taken:
                continue
            whole = ([ANY] if its_batch else []) + list(tensor.dims)
            side.add(name=name, data_type=tensor.data_type, dims=whole[1:] if batch else whole)
    note = f"it works where {', '.join(config.name for config in configs)} lie in the same repository"
    return Reading(ensemble, notes=(note, *_apart(configs, ensemble)))


def _apart(configs: Sequence[Any], ensemble: Any) -> Iterator[str]:
    """Yield notes on steps that take nothing of those before, with the link that may be meant."""
    steps = ensemble.ensemble_scheduling.step
    for number in range(1, len(steps)):
        before = {name: (other, key) for other in range(number) for key, name in steps[other].output_map.items()}
        if before.keys() & set(steps[number].input_map.values()):
            continue
        said = f"{configs[number].name} takes nothing of the steps before it"
        for tensor in configs[number].input:
            for name, (other, key) in before.items():
                own = next(each for each in configs[other].output if each.name == key)
                if own.data_type == tensor.data_type and list(own.dims) == list(tensor.dims):
                    said += f"; if it is to take {name}: --link {configs[number].name}.{tensor.name}={name}"
                    break
        yield said


def _config(source: Path) -> Any:
    entry = read_entry(source)
    if entry.config is None:
        why = "; ".join(f"{problem.where}: {problem.what}" for problem in entry.problems)
        raise UsageError("it is no entry with a configuration", where=source, why=why)
    if not entry.config.input or not entry.config.output:
        do = "name its inputs and outputs there; Triton can complete them, but whoever chains it must know them"
        raise UsageError("its configuration names no tensors", where=source / "config.pbtxt", do=do)
    config = ModelConfig()
    config.CopyFrom(entry.config)
    config.name = config.name or entry.name
    return config


def _same(name: str, new: tuple[str, Any, int], entrances: dict[str, tuple[str, Any, int]]) -> None:
    model, tensor, _ = new
    first_model, first, _ = entrances.setdefault(name, new)
    if first.data_type != tensor.data_type:
        what = f"{first_model} and {model} both take {name!r}, of different types"
        raise UsageError(what, do=f"give one of them another name: --link {model}.{tensor.name}=NAME")
