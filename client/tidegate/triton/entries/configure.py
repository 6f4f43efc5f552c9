"""What a framework's files tell and what somebody chose, made one configuration."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from ...errors import UsageError
from .frameworks.reading import ANY, Reading, Tensor


@dataclass(frozen=True)
class WarmUp:
    """A request that Triton makes of each instance before the model is ready."""

    content: str = "zero"
    """`zero` or `random`."""
    batch_size: int = 1
    dims: dict[str, Sequence[int]] = field(default_factory=dict)
    """Of inputs some of whose dimensions may have any size."""
    count: int = 1


def complete(reading: Reading, name: str, settings: Any, warm_up: WarmUp | None = None) -> Any:
    """Return the ModelConfig of an entry.

    `settings` is a ModelConfig with what was chosen: its tensors are laid over those that the file tells of, by their
    names, and its other fields over the framework's. Raises UsageError where they do not fit, or where neither tells
    what the tensors are.
    """
    config = ModelConfig(name=name)
    config.MergeFrom(reading.config)
    chosen = ModelConfig()
    chosen.CopyFrom(settings)
    chosen.ClearField("name")
    if chosen.WhichOneof("scheduling_choice"):
        config.ClearField(config.WhichOneof("scheduling_choice") or "dynamic_batching")
    if chosen.instance_group:
        config.ClearField("instance_group")
    for side in ("input", "output"):
        chosen.ClearField(side)
    config.MergeFrom(chosen)
    for side, told in (("input", reading.inputs), ("output", reading.outputs)):
        _tensors(config, side, told, reading, getattr(settings, side))
    if reading.missing and not (config.input and config.output):
        raise UsageError(
            f"{name}: {reading.missing}",
            do="say them: --input NAME:TYPE:DIMS --output NAME:TYPE:DIMS, with DIMS as 3,224,224 (-1 is any size), "
            "without the batch's where --max-batch-size is above 0",
        )
    if warm_up is not None:
        _add_warm_up(config, warm_up)
    return config


def together(first: Any, *more: Any) -> Any:
    """Return several ModelConfigs with choices as one: later ones count, and tensors are the same by their names."""
    joined = ModelConfig()
    joined.CopyFrom(first)
    for each in more:
        rest = ModelConfig()
        rest.CopyFrom(each)
        for side in ("input", "output"):
            there = {tensor.name: tensor for tensor in getattr(joined, side)}
            for tensor in getattr(each, side):
                if tensor.name in there:
                    _lay_over(there[tensor.name], tensor)
                else:
                    getattr(joined, side).add().CopyFrom(tensor)
            rest.ClearField(side)
        joined.MergeFrom(rest)
    return joined


def first_dimension_varies(reading: Reading) -> bool:
    """Tell whether the first dimension of all tensors may have any size, so that it could be the batch."""
    tensors = (*reading.inputs, *reading.outputs)
    return reading.whole_shapes and bool(tensors) and all(each.dims[:1] == (ANY,) for each in tensors)


def _tensors(config: Any, side: str, told: Sequence[Tensor], reading: Reading, chosen: Sequence[Any]) -> None:
    into = getattr(config, side)
    known = {each.name: each for each in into}  # an ensemble's are in its configuration already
    over = {each.name: each for each in chosen}
    for tensor in told:
        said = tensor.name in over and over[tensor.name].dims  # as config.pbtxt has them, without the batch's
        strip = reading.whole_shapes and config.max_batch_size > 0 and not said
        dims = _without_batch(tensor, config.max_batch_size) if strip else tensor.dims
        if not dims and not config.max_batch_size and not said:
            raise UsageError(
                f"{side} {tensor.name!r} is a single number without dimensions, which Triton cannot pass",
                do="export the model with a dimension there, such as [1]",
            )
        known[tensor.name] = _add(into, tensor, dims)
    for name, each in over.items():
        if known and name not in known:
            near = get_close_matches(name, known, 1) or list(known)
            raise UsageError(
                f"the model has no {side} {name!r}", do=f"its {side}s are {', '.join(known)}; say {near[0]}"
            )
        _lay_over(known[name] if name in known else into.add(), each)
    for each in into:
        if not each.data_type or not each.dims:
            raise UsageError(
                f"nobody says type and dimensions of {side} {each.name!r}", do=f"say --{side} {each.name}:TYPE:DIMS"
            )


def _lay_over(tensor: Any, chosen: Any) -> None:
    if chosen.dims:
        tensor.ClearField("dims")
        tensor.ClearField("reshape")
    tensor.MergeFrom(chosen)


def _without_batch(tensor: Tensor, batch: int) -> tuple[int, ...]:
    if tensor.dims[:1] != (ANY,):
        raise UsageError(
            f"no batches of {batch} can be formed: {tensor.name!r} is {tensor.data_type} {list(tensor.dims)}",
            why="Triton batches along a first dimension of any size, which every tensor must have",
            do="leave out --max-batch-size, or export the model with a variable first dimension",
        )
    return tensor.dims[1:]


def _add(into: Any, tensor: Tensor, dims: Sequence[int]) -> Any:
    added = into.add(name=tensor.name, data_type=DataType.Value(f"TYPE_{tensor.data_type}"), dims=dims or (1,))
    if not dims:  # Triton wants a dimension; the model has none
        added.reshape.SetInParent()
    if tensor.optional:
        added.optional = True
    if tensor.ragged:
        added.allow_ragged_batch = True
    return added


def _add_warm_up(config: Any, warm_up: WarmUp) -> None:
    if not config.input:
        raise UsageError("a warm-up needs inputs that are named", do="say --input NAME:TYPE:DIMS")
    names = [each.name for each in config.input]
    if unknown := sorted(set(warm_up.dims) - set(names)):
        raise UsageError(f"the model has no input {unknown[0]!r} to warm up with", do=f"it has {', '.join(names)}")
    request = config.model_warmup.add(
        name=f"{warm_up.content} inputs", batch_size=warm_up.batch_size, count=warm_up.count
    )
    for each in config.input:
        if each.optional and each.name not in warm_up.dims:
            continue
        dims = tuple(warm_up.dims.get(each.name, each.dims))
        if ANY in dims:
            raise UsageError(
                f"input {each.name!r} has dimensions of any size, {list(dims)}, and a warm-up must have some",
                do=f"say --warm-up-dims {each.name}:DIMS",
            )
        content = request.inputs[each.name]
        content.data_type = each.data_type
        content.dims.extend(dims)
        setattr(content, f"{warm_up.content}_data", True)
