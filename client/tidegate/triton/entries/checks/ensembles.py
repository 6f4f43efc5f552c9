"""Checks ensembles: every tensor must have one source and a use, and fit the models of the steps."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import closest, value_name
from .backends import ENSEMBLE, is_ensemble

NEWEST = -1  # the version of a step that uses the newest one


@dataclass(frozen=True)
class Neighbour:
    """A model next to the ensemble."""

    config: ModelConfig
    versions: frozenset[int] | None = None


@dataclass(frozen=True)
class _Tensor:
    owner: str
    data_type: int
    dims: tuple[int, ...]
    batches: bool

    @property
    def full(self) -> tuple[int, ...]:
        return (-1, *self.dims) if self.batches else self.dims

    def fits(self, other: "_Tensor") -> bool:
        """Compare with or without the batch: a step without batches may take it as its first dimension."""
        return _same(self.dims, other.dims) or _same(self.full, other.full)

    def __str__(self) -> str:
        return f"{value_name(DataType, self.data_type)} {list(self.full)} of '{self.owner}'"


@dataclass(frozen=True)
class _Step:
    """One step: a model that consumes and produces tensors of the ensemble."""

    index: int
    model: str
    version: int  # NEWEST, or the required version.
    inputs: tuple[tuple[str, str], ...]  # Names in the model and in the ensemble, sorted by the model's.
    outputs: tuple[tuple[str, str], ...]

    @property
    def place(self) -> str:
        return f"ensemble_scheduling.step[{self.index}]"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset(tensor for _, tensor in self.inputs)

    @property
    def gives(self) -> frozenset[str]:
        return frozenset(tensor for _, tensor in self.outputs)


def _steps(config: Any) -> list[_Step]:
    return [
        _Step(index, step.model_name, step.model_version, _sorted(step.input_map), _sorted(step.output_map))
        for index, step in enumerate(config.ensemble_scheduling.step)
    ]


def _sorted(names: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(names.items()))


def _that_run(config: Any) -> list[_Step]:
    """Return the steps in an order in which they can run, without those that can never run."""
    there, left, found = {tensor.name for tensor in config.input}, _steps(config), list[_Step]()
    while wave := [step for step in left if step.takes <= there]:
        found += wave
        left = [step for step in left if step not in wave]
        there.update(*(step.gives for step in wave))
    return found


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield findings about an ensemble by itself."""
    if not is_ensemble(config):
        return
    if not config.HasField("ensemble_scheduling"):
        yield error("the ensemble has no steps", "platform", do="write ensemble_scheduling { step [ … ] }")
        return
    if config.platform != ENSEMBLE:
        what, do = f"a model with ensemble_scheduling has platform '{ENSEMBLE}'", f'write platform: "{ENSEMBLE}"'
        yield error(what, "platform" if config.platform else "ensemble_scheduling", do=do)
    steps = _steps(config)
    if not steps:
        yield error("the ensemble has no steps", "ensemble_scheduling", do="write step [ { … } ]")
    for step in steps:
        yield from _step(entry, step)
    yield from _tensors(config, steps)


def _step(entry: Entry, step: _Step) -> Iterator[Finding]:
    place, subject = step.place, f"step {step.index} ({step.model})"
    if not step.model:
        yield error(f"step {step.index} names no model", place, do='write model_name: "…"')
    elif step.model == entry.name:
        yield error("the ensemble is a step of itself", f"{place}.model_name", do="name another model")
    for field, given in (("input_map", step.inputs), ("output_map", step.outputs)):
        if not given:
            do = f'write {field} {{ key: "its tensor" value: "the ensemble\'s" }}'
            yield error(f"{subject} has no {field}", place, do=do)
    where, do = f"{place}.model_version", f"write model_version: {NEWEST} for the newest"
    if step.version == 0:
        why = "the default is 0, which is an ordinary version, not the newest"
        yield error(f"{subject} requires version 0", where, why, do)
    elif step.version > 0:
        why = "the registry numbers the versions, and the ensemble breaks when that version is no longer served"
        yield warning(f"{subject} requires version {step.version}", where, why, do)


def _tensors(config: Any, steps: list[_Step]) -> Iterator[Finding]:
    inputs, outputs = ([tensor.name for tensor in side] for side in (config.input, config.output))
    ready = {*inputs}.union(*(step.gives for step in _that_run(config)))
    produced = {tensor for step in steps for tensor in step.gives}
    used = {tensor for step in steps for tensor in step.takes}
    lacking, wanted, spare = used - ready, (used | {*outputs}) - ready, produced - used
    made: dict[str, int] = {}
    for number, name in enumerate(inputs):
        if name and name not in used:
            do = closest(name, lacking, "add it to an input_map, or remove it")
            yield error(f"the input '{name}' is not used", f"input[{number}]", do=do)
    for step in steps:
        for key, tensor in step.outputs:
            where = f'{step.place}.output_map["{key}"]'
            if tensor in made:
                what = f"steps {made[tensor]} and {step.index} both produce the tensor '{tensor}'"
                yield error(what, where, do="give each its own name")
            elif tensor not in used and tensor not in outputs:
                do = closest(tensor, wanted, "remove it from the output_map")
                yield error(f"the tensor '{tensor}' is not used", where, "no step uses it, and it is not an output", do)
            elif tensor in inputs:
                what = f"step {step.index} also produces the input '{tensor}'"
                yield warning(what, where, do="rename the step's output")
            made.setdefault(tensor, step.index)
        for key, tensor in step.inputs:
            if tensor not in ready:
                where = f'{step.place}.input_map["{key}"]'
                why = "the steps wait for each other" if tensor in produced else ""
                yield error(f"nothing produces the tensor '{tensor}'", where, why, closest(tensor, ready))
    for number, name in enumerate(outputs):
        if name and name not in ready and name not in used and name not in made:
            do = closest(name, spare, "add it to an output_map")
            yield error(f"no step produces the output '{name}'", f"output[{number}]", do=do)


def check_steps(
    entry: Entry, config: Any, find: Callable[[str], Neighbour | None], *, complete: bool
) -> Iterator[Finding]:
    """Yield mismatches between an ensemble and its steps' models. `complete`: a model that `find` lacks is missing."""
    if not config.HasField("ensemble_scheduling"):
        return
    steps, tensors = _steps(config), {}
    for tensor in (*config.output, *config.input):
        dims = tuple(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)  # as the steps see it
        tensors[tensor.name] = _Tensor(entry.name, tensor.data_type, dims, config.max_batch_size > 0)
    models: dict[str, Neighbour] = {}
    for step in steps:
        where = f"{step.place}.model_name"
        if not step.model or step.model == entry.name:
            continue
        if (model := find(step.model)) is None:
            what = f"there is no model '{step.model}'"
            if complete:
                yield error(what, where, "Triton refuses an ensemble with a missing step")
            else:
                yield warning(what, where, "it is not next to the ensemble, so its tensors were not compared")
            continue
        models[step.model] = model
        if step.version > 0 and model.versions is not None and step.version not in model.versions:
            yield error(f"'{step.model}' has no version {step.version}", where, do=f"write model_version: {NEWEST}")
        if 0 < model.config.max_batch_size < config.max_batch_size:
            what = f"batches of {config.max_batch_size} are too large for step {step.index}"
            why = f"'{step.model}' takes at most {model.config.max_batch_size}"
            yield error(what, where, why, f"set the ensemble's max_batch_size to {model.config.max_batch_size}")
        elif config.max_batch_size == 0 < model.config.max_batch_size and _lacks_the_batch(step, model.config, tensors):
            what = f"step {step.index} uses batches, but the ensemble does not"
            why = f"'{step.model}' takes shapes with a first dimension for the batch, and calls with other shapes fail"
            yield warning(what, where, why, "set the ensemble's max_batch_size, or write -1 as the first of its dims")
        yield from _mapped(step, model.config, tensors)
    if models.keys() >= {step.model for step in steps}:
        yield from _decoupled(config, models)


def _mapped(step: _Step, model: Any, tensors: dict[str, _Tensor]) -> Iterator[Finding]:
    for side, mapped in (("input", step.inputs), ("output", step.outputs)):
        declared = {tensor.name: tensor for tensor in getattr(model, side)}
        if not declared:
            continue  # its backend reads them from the model
        for name, tensor in mapped:
            where = f'{step.place}.{side}_map["{name}"]'
            if name not in declared:
                why = f"it has {', '.join(declared)}"
                yield error(f"'{step.model}' has no {side} '{name}'", where, why, closest(name, declared))
                continue
            own = declared[name]
            there = _Tensor(step.model, own.data_type, tuple(own.dims), model.max_batch_size > 0)
            before = tensors.setdefault(tensor, there)
            if before.data_type != there.data_type:
                why = f"{before}, and {there}"
                yield error(f"the tensor '{tensor}' has two types", where, why, "make both equal")
            elif not before.fits(there):
                yield error(f"the tensor '{tensor}' has two shapes", where, f"{before}, and {there}", "make both equal")
        if side == "input":
            for name in declared.keys() - dict(mapped).keys():
                if not declared[name].optional:
                    what = f"step {step.index} ({step.model}) lacks the input '{name}'"
                    yield error(what, step.place, do="add it to its input_map")


def _lacks_the_batch(step: _Step, model: Any, tensors: dict[str, _Tensor]) -> bool:
    """Return whether a tensor between the two lacks the dimension of the step's batches."""
    own = {tensor.name: tensor for tensor in (*model.input, *model.output)}
    return any(
        name in own and tensor in tensors and not tensors[tensor].batches
        and len(tensors[tensor].dims) == len(own[name].dims)
        for name, tensor in (*step.inputs, *step.outputs)
    )  # fmt: skip


def _decoupled(config: Any, models: dict[str, Neighbour]) -> Iterator[Finding]:
    """Yield errors if responses of two decoupled models would have to be combined."""
    source = {tensor.name: -1 for tensor in config.input}
    for step in _that_run(config):
        sources = {source[tensor] for tensor in step.takes}
        if len(sources) > 1:
            what = f"step {step.index} ({step.model}) combines different decoupled models"
            yield error(what, step.place, "their numbers of responses differ")
        decoupled = models[step.model].config.model_transaction_policy.decoupled
        source |= dict.fromkeys(step.gives, step.index if decoupled or not sources else min(sources))
    if len({source[each.name] for each in config.output if each.name in source}) > 1:
        yield error("the outputs come from different decoupled models", "output", "their numbers of responses differ")


def _same(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(-1 in (a, b) or a == b for a, b in zip(one, other, strict=True))
