"""What was chosen for an entry and what the model's files tell, made one configuration of Triton's."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from ...errors import UsageError
from ...names import nearest_of
from .frameworks.reading import ANY, Reading, Tensor, data_type, in_range


@dataclass(frozen=True)
class Options:
    """The common options of `tidegate model new`, as they are written there; a settings file has all other fields."""

    inputs: Sequence[str] = ()
    """`NAME:TYPE:DIMS` each: `image:FP32:3,224,224`; TYPE or DIMS may be empty for a tensor that the file tells of."""
    outputs: Sequence[str] = ()
    max_batch_size: int = 0
    dynamic_batching: bool = False
    parameters: Sequence[str] = ()  # `KEY=VALUE` each.

    @in_range()
    def config(self) -> Any:
        """Return them as a ModelConfig; raises UsageError that names the option's text."""
        if self.max_batch_size < 0:
            raise UsageError(f"a batch of {self.max_batch_size} makes no sense", do="say 0 for no batches, or a number")
        config = ModelConfig(max_batch_size=self.max_batch_size)
        for side, texts in ((config.input, self.inputs), (config.output, self.outputs)):
            for text in texts:
                name, kind, dims = _tensor_option(text)
                side.add(name=name, data_type=DataType.Value(f"TYPE_{kind}") if kind else 0, dims=dims)
        if self.dynamic_batching:
            config.dynamic_batching.SetInParent()
        for text in self.parameters:
            key, value = pair(text, "--parameter KEY=VALUE")
            config.parameters[key].string_value = value
        return config


def pair(text: str, form: str) -> tuple[str, str]:
    """Return both sides of the first `=`; raises UsageError with the `form` that the text should have."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise _malformed(text, form)
    return key, value


def complete(reading: Reading, name: str, settings: Any) -> Any:
    """Return the ModelConfig of an entry; raises UsageError where what is chosen and what the file tells do not fit.

    `settings` is a ModelConfig with what was chosen: its tensors are laid over those that the file tells of, by their
    names, and its other fields over the framework's.
    """
    config = ModelConfig(name=name)
    config.MergeFrom(reading.config)
    chosen = ModelConfig()
    chosen.CopyFrom(settings)
    for field in ("name", "input", "output"):
        chosen.ClearField(field)
    if chosen.WhichOneof("scheduling_choice"):
        config.ClearField(config.WhichOneof("scheduling_choice") or "dynamic_batching")
    if chosen.instance_group:
        config.ClearField("instance_group")
    config.MergeFrom(chosen)
    for side, tensors in (("input", reading.inputs), ("output", reading.outputs)):
        _tensors(config, side, tensors, reading, getattr(settings, side))
    if reading.missing and not (config.input and config.output):
        raise UsageError(
            f"{name}: {reading.missing}",
            do="say them: --input NAME:TYPE:DIMS --output NAME:TYPE:DIMS, with DIMS as 3,224,224 (-1 is any size), "
            "without the batch's where --max-batch-size is above 0",
        )
    return config


def overlaid(settings: Any, options: Any) -> Any:
    """Return two ModelConfigs as one: `options` count over `settings`, and tensors are the same by their names."""
    joined, rest = ModelConfig(), ModelConfig()
    joined.CopyFrom(settings)
    rest.CopyFrom(options)
    for side in ("input", "output"):
        there = {tensor.name: tensor for tensor in getattr(joined, side)}
        for tensor in getattr(options, side):
            _lay_over(there[tensor.name] if tensor.name in there else getattr(joined, side).add(), tensor)
        rest.ClearField(side)
    joined.MergeFrom(rest)
    return joined


def first_dimension_varies(reading: Reading) -> bool:
    """Tell whether the first dimension of all tensors may have any size, so that it could be the batch."""
    tensors = (*reading.inputs, *reading.outputs)
    return reading.whole_shapes and bool(tensors) and all(each.dims[:1] == (ANY,) for each in tensors)


def _tensors(config: Any, side: str, tensors: Sequence[Tensor], reading: Reading, chosen: Sequence[Any]) -> None:
    into = getattr(config, side)
    known: dict[str, Any] = {}
    over = {each.name: each for each in chosen}
    for tensor in tensors:
        is_chosen = tensor.name in over and over[tensor.name].dims  # as config.pbtxt has them, without the batch's
        strip = reading.whole_shapes and config.max_batch_size > 0 and not is_chosen
        dims = _without_batch(tensor, config.max_batch_size) if strip else tensor.dims
        if not dims and not config.max_batch_size and not is_chosen:
            what = f"{side} {tensor.name!r} is a single number without dimensions, which Triton cannot pass"
            raise UsageError(what, do="export the model with a dimension there, such as [1]")
        known[tensor.name] = add_tensor(into, tensor, dims)
    for name, each in over.items():
        if known and name not in known:
            raise UsageError(f"the model has no {side} {name!r}", do=nearest_of(name, known, f"{side}s"))
        _lay_over(known[name] if name in known else into.add(), each)
    for each in into:
        if not each.data_type or not each.dims:
            do = f"say --{side} {each.name}:TYPE:DIMS"
            raise UsageError(f"nobody says type and dimensions of {side} {each.name!r}", do=do)


def _lay_over(tensor: Any, chosen: Any) -> None:
    if chosen.dims:
        tensor.ClearField("dims")
        tensor.ClearField("reshape")
    tensor.MergeFrom(chosen)


def _without_batch(tensor: Tensor, batch: int) -> tuple[int, ...]:
    if tensor.dims[:1] != (ANY,):
        what = f"no batches of {batch} can be formed: {tensor.name!r} is {tensor.data_type} {list(tensor.dims)}"
        why = "Triton batches along a first dimension of any size, which every tensor must have"
        do = "leave out --max-batch-size, or export the model with a variable first dimension"
        raise UsageError(what, why=why, do=do)
    return tensor.dims[1:]


def add_tensor(into: Any, tensor: Tensor, dims: Sequence[int]) -> Any:
    """Add a tensor to one side of a ModelConfig, with these dimensions, and return what was added."""
    added = into.add(name=tensor.name, data_type=DataType.Value(f"TYPE_{tensor.data_type}"), dims=dims or (1,))
    if not dims:  # Triton wants a dimension; the model has none
        added.reshape.SetInParent()
    if tensor.optional:
        added.optional = True
    if tensor.ragged:
        added.allow_ragged_batch = True
    return added


def _tensor_option(text: str) -> tuple[str, str, tuple[int, ...]]:
    """Return name, Triton's type (or "") and dimensions (or none) of `NAME:TYPE:DIMS`."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0]:
        raise _malformed(text, "NAME:TYPE:DIMS, for example image:FP32:3,224,224")
    name, kind, dims = parts
    sizes = dims.strip("[]").split(",") if dims else []
    if not all(re.fullmatch(r"\s*(-1|[1-9]\d*)\s*", each) for each in sizes):
        raise UsageError(f"{text!r}: {dims!r} are no dimensions", do="say numbers with commas; -1 is any size")
    return name, data_type(kind) if kind else "", tuple(int(each) for each in sizes)


def _malformed(text: str, form: str) -> UsageError:
    return UsageError(f"{text!r} makes no sense here", do=f"write it so: {form}")
