"""What an entry is, told from its files: tensors, versions, and how Triton will run it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from pydantic import BaseModel
from tritonclient.grpc.model_config_pb2 import DataType, ModelInstanceGroup, ModelOptimizationPolicy, ModelQueuePolicy

from ...errors import UsageError
from ...findings import errors
from .entry import read_entry
from .frameworks.reading import ANY
from .text import CONFIG


class ShownTensor(BaseModel):
    """One input or output."""

    name: str
    data_type: str
    shape: tuple[int, ...]
    """As requests have it, the batch's dimension among it; -1 is any size."""
    notes: tuple[str, ...] = ()


class ShownStep(BaseModel):
    """One step of an ensemble: its model's tensors, and those of the ensemble that they are."""

    model: str
    version: int
    """-1 is the newest."""
    inputs: dict[str, str]
    outputs: dict[str, str]


class Shown(BaseModel):
    """An entry."""

    name: str
    backend: str
    max_batch_size: int
    versions: tuple[int, ...]
    files: int
    size: int
    """Bytes of all files."""
    inputs: tuple[ShownTensor, ...]
    outputs: tuple[ShownTensor, ...]
    steps: tuple[ShownStep, ...] = ()
    runs: tuple[tuple[str, str], ...]
    """How Triton runs it: what, and how that is set."""
    config: dict[str, Any]
    """The whole configuration, with the names of config.pbtxt."""


def show_entry(folder: Path) -> Shown:
    """Describe an entry; raises UsageError when there is none, or its configuration cannot be parsed."""
    entry = read_entry(folder)
    config = entry.config
    if config is None or errors(entry.text.problems if entry.text else ()):
        found = errors(entry.text.problems if entry.text else entry.problems)
        raise UsageError(
            f"its {CONFIG} cannot be read" if entry.text else f"it has no {CONFIG}", where=str(folder),
            why="\n".join(map(str, found)), do=f"`tidegate model check {folder}` explains it",
        )  # fmt: skip
    return Shown(
        name=config.name or entry.name,
        backend=config.backend or config.platform or "(Triton guesses it from the files)",
        max_batch_size=config.max_batch_size,
        versions=entry.versions,
        files=len(entry.files),
        size=sum(file.size for file in entry.files),
        inputs=tuple(_tensor(each, config.max_batch_size) for each in config.input),
        outputs=tuple(_tensor(each, config.max_batch_size) for each in config.output),
        steps=tuple(
            ShownStep(
                model=step.model_name,
                version=step.model_version,
                inputs=dict(step.input_map),
                outputs=dict(step.output_map),
            )
            for step in config.ensemble_scheduling.step
        ),
        runs=tuple(_runs(config)),
        config=MessageToDict(config, preserving_proto_field_name=True),
    )


def _tensor(tensor: Any, batch: int) -> ShownTensor:
    notes = [
        note
        for note, holds in (
            ("optional", getattr(tensor, "optional", False)),
            ("ragged", getattr(tensor, "allow_ragged_batch", False)),
            ("shape tensor", tensor.is_shape_tensor),
            (f"the model itself has {list(tensor.reshape.shape)}", tensor.HasField("reshape")),
            (f"labels in {getattr(tensor, 'label_filename', '')}", bool(getattr(tensor, "label_filename", ""))),
        )
        if holds
    ]
    return ShownTensor(
        name=tensor.name,
        data_type=DataType.Name(tensor.data_type).removeprefix("TYPE_"),
        shape=((ANY,) if batch else ()) + tuple(tensor.dims),
        notes=tuple(notes),
    )


def _runs(config: Any) -> Iterator[tuple[str, str]]:
    scheduling = config.WhichOneof("scheduling_choice")
    if scheduling == "dynamic_batching" and config.max_batch_size:
        yield "batches", f"dynamic, up to {config.max_batch_size}; {_dynamic(config.dynamic_batching)}"
    elif scheduling == "sequence_batching":
        yield "batches", f"of sequences, up to {config.max_batch_size}; {_sequence(config.sequence_batching)}"
    elif config.max_batch_size:
        yield "batches", f"as requests bring them, up to {config.max_batch_size}"
    else:
        yield "batches", "none: a request's tensors have exactly these shapes"
    if scheduling != "ensemble_scheduling":
        yield "instances", "; ".join(_instance(each) for each in config.instance_group) or "one for each GPU, else one"
    if config.HasField("version_policy"):
        policy = config.version_policy
        kind = policy.WhichOneof("policy_choice")
        latest, specific = [policy.latest.num_versions or 1], policy.specific.versions
        numbers = specific if kind == "specific" else latest if kind == "latest" else []
        yield "versions served", " ".join([kind or "latest", *map(str, numbers)])
    if config.model_transaction_policy.decoupled:
        yield "answers", "any number for each request (decoupled): call it by a stream"
    if config.response_cache.enable:
        yield "response cache", "on, where the server has one"
    accelerators = config.optimization.execution_accelerators
    for side in ("gpu", "cpu"):
        for each in getattr(accelerators, f"{side}_execution_accelerator"):
            said = ", ".join(f"{key}={value}" for key, value in sorted(each.parameters.items()))
            yield f"accelerator ({side})", f"{each.name} {said}".strip()
    if config.optimization.priority:
        yield "priority", ModelOptimizationPolicy.ModelPriority.Name(config.optimization.priority)
    for each in config.model_warmup:
        inputs = ", ".join(f"{name} {list(content.dims)}" for name, content in sorted(each.inputs.items()))
        yield "warm-up", f"{each.name or 'unnamed'}: {max(each.count, 1)} × batch {each.batch_size}: {inputs}"
    for key in sorted(config.parameters):
        yield "parameter", f"{key}={config.parameters[key].string_value}"


def _dynamic(batching: Any) -> str:
    said = [_delay(batching.max_queue_delay_microseconds)]
    if batching.preferred_batch_size:
        said.append(f"rather {_numbers(batching.preferred_batch_size)}")
    if batching.priority_levels:
        said.append(f"{batching.priority_levels} priorities, {batching.default_priority_level} unless said")
    if batching.preserve_ordering:
        said.append("answers in order")
    if batching.HasField("default_queue_policy"):
        said.append(_queue(batching.default_queue_policy))
    for level in sorted(batching.priority_queue_policy):
        said.append(f"priority {level}: {_queue(batching.priority_queue_policy[level])}")
    return "; ".join(said)


def _sequence(batching: Any) -> str:
    strategy = batching.WhichOneof("strategy_choice") or "direct"
    said = [strategy]
    if batching.max_sequence_idle_microseconds:
        said.append(f"given up after {_time(batching.max_sequence_idle_microseconds)} without a request")
    said += [f"control {each.name}" for each in batching.control_input]
    said += [f"state {each.input_name} → {each.output_name}" for each in batching.state]
    return "; ".join(said)


def _queue(policy: Any) -> str:
    said = [f"at most {policy.max_queue_size} wait"] if policy.max_queue_size else []
    if policy.default_timeout_microseconds:
        action = ModelQueuePolicy.TimeoutAction.Name(policy.timeout_action).lower()
        said.append(f"{action} after {_time(policy.default_timeout_microseconds)}")
    if policy.allow_timeout_override:
        said.append("a request may say less")
    return ", ".join(said) or "any number wait"


def _instance(group: Any) -> str:
    kind = ModelInstanceGroup.Kind.Name(group.kind).removeprefix("KIND_")
    said = f"{max(group.count, 1)} × {kind}"
    if group.gpus:
        said += f" {_numbers(group.gpus)}"
    if group.HasField("rate_limiter"):
        resources = ", ".join(
            f"{each.name}={each.count}{' (global)' if getattr(each, 'global') else ''}"
            for each in group.rate_limiter.resources
        )
        said += f", rate limited: {resources or 'no resources'}, priority {group.rate_limiter.priority}"
    return said


def _delay(microseconds: int) -> str:
    return f"waits up to {_time(microseconds)} for more" if microseconds else "does not wait for more"


def _time(microseconds: int) -> str:
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if microseconds >= size:
            return f"{microseconds / size:g} {unit}"
    return f"{microseconds} µs"


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
