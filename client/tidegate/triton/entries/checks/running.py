"""How a model runs: instances, devices and accelerators; dynamic batching, sequences, and the response cache."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tritonclient.grpc.model_config_pb2 import DataType, ModelInstanceGroup, ModelQueuePolicy, ModelSequenceBatching

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import closest, value_name
from .backends import is_ensemble, resolved

_ACCELERATORS: dict[str, dict[str, tuple[str, ...]]] = {
    "gpu_execution_accelerator": {"onnxruntime": ("cuda", "tensorrt")},
    "cpu_execution_accelerator": {"onnxruntime": ("openvino",)},
}  # fmt: skip
_OF_STEPS = {"instance_group": "instances", "model_warmup": "warm-up", "optimization": "optimization"}
"""What an ensemble's steps have, and not the ensemble itself."""
_BATCHING, _SEQUENCES = "dynamic_batching", "sequence_batching"
_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRID = ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID
_CORRID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def check(_entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with max_batch_size, batching, sequences, the response cache and decoupled answers."""
    if config.max_batch_size < 0:
        yield error(f"max_batch_size is {config.max_batch_size}", "max_batch_size", do="write 0 for no batches")
    if config.HasField(_BATCHING):
        yield from _dynamic(config.dynamic_batching, config.max_batch_size)
    if config.HasField(_SEQUENCES):
        yield from _sequences(config)
    yield from _answers(config)


def _dynamic(batching: Any, largest: int) -> Iterator[Finding]:
    yield from _preferred(f"{_BATCHING}.preferred_batch_size", batching.preferred_batch_size, largest)
    if largest <= 1:
        do = f"{'raise' if largest == 1 else 'set'} max_batch_size, or take dynamic_batching out"
        yield warning("dynamic_batching makes no batches", _BATCHING, f"max_batch_size is {largest}", do)
    yield from _priorities(batching)
    yield from _order(batching)
    policies = {"default_queue_policy": batching.default_queue_policy} | {
        f'priority_queue_policy["{level}"]': policy for level, policy in batching.priority_queue_policy.items()
    }
    for name, policy in policies.items():
        has_timeout = policy.default_timeout_microseconds or policy.allow_timeout_override
        if policy.timeout_action == ModelQueuePolicy.DELAY and not has_timeout:
            where, do = f"{_BATCHING}.{name}.timeout_action", "set default_timeout_microseconds"
            yield warning("timeout_action means nothing", where, "no request has a timeout", do)


def _preferred(field: str, sizes: Any, largest: int) -> Iterator[Finding]:
    for number, size in enumerate(sizes):
        where = f"{field}[{number}]"
        if size <= 0:
            yield error(f"a preferred batch size is {size}", where, do="write sizes from 1 to max_batch_size")
        elif size > largest:
            what = f"the preferred batch size {size} is larger than max_batch_size ({max(largest, 0)})"
            yield error(what, where, do=f"set max_batch_size to {size} or more, or take the size out")


def _priorities(batching: Any) -> Iterator[Finding]:
    levels = batching.priority_levels
    if not levels:
        for field in ("default_priority_level", "priority_queue_policy"):
            if getattr(batching, field):
                why, do = "priority_levels is not set", "set priority_levels"
                yield warning(f"{field} means nothing", f"{_BATCHING}.{field}", why, do)
        return
    default = batching.default_priority_level
    if not 1 <= default <= levels:
        what = f"default_priority_level is {default}, and there are levels 1 to {levels}"
        yield error(what, f"{_BATCHING}.default_priority_level", do="write the level of requests that say none")
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            where = f'{_BATCHING}.priority_queue_policy["{level}"]'
            yield error(f"there is no priority level {level}", where, f"there are levels 1 to {levels}")


def _order(batching: Any) -> Iterator[Finding]:
    if not batching.preserve_ordering:
        return
    where = f"{_BATCHING}.preserve_ordering"
    if batching.priority_levels > 1:
        yield error("preserve_ordering allows one priority level only", where, do="take one of both out")
    for policy in (batching.default_queue_policy, *batching.priority_queue_policy.values()):
        if policy.default_timeout_microseconds and policy.timeout_action == ModelQueuePolicy.DELAY:
            what, do = "preserve_ordering and timeout_action: DELAY exclude each other", "write timeout_action: REJECT"
            yield error(what, where, "what is delayed is answered after what came later", do)


def _sequences(config: Any) -> Iterator[Finding]:
    batching = config.sequence_batching
    yield from _controls(batching, {tensor.name for tensor in config.input})
    for number, state in enumerate(batching.state):
        for field in ("input_name", "output_name"):
            if not getattr(state, field):
                what = f"the state '{state.input_name}' has no {field}"
                yield warning(what, f"{_SEQUENCES}.state[{number}]", do=f'write {field}: "…"')
    if batching.HasField("oldest"):
        where, sizes = f"{_SEQUENCES}.oldest", batching.oldest.preferred_batch_size
        yield from _preferred(f"{where}.preferred_batch_size", sizes, config.max_batch_size)
        if config.max_batch_size < 1:
            yield warning("'oldest' makes no batches", where, "max_batch_size is 0", "set max_batch_size")
    if config.response_cache.enable:
        what, do = "the response cache and sequences exclude each other", "take response_cache out"
        yield error(what, "response_cache", "what a sequence answers depends on what came before", do)


def _controls(batching: Any, inputs: set[str]) -> Iterator[Finding]:
    names: set[str] = set()
    kinds: set[int] = set()
    for number, tensor in enumerate(batching.control_input):
        place = f"{_SEQUENCES}.control_input[{number}]"
        if not tensor.name:
            yield error("a control input has no name", place, do='write name: "…"')
        elif tensor.name in names:
            yield error(f"the control input '{tensor.name}' stands twice", place, do="give each its name")
        elif tensor.name in inputs:
            what, do = f"'{tensor.name}' is an input and a control input", "take it out of the inputs"
            yield warning(what, place, "Triton fills it in by itself, so that no caller need give it", do)
        names.add(tensor.name)
        if not tensor.control:
            do = "write control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }"
            yield warning(f"the control input '{tensor.name}' controls nothing", place, do=do)
        for index, control in enumerate(tensor.control):
            kind, where = value_name(ModelSequenceBatching.Control.Kind, control.kind), f"{place}.control[{index}]"
            if control.kind in kinds:
                yield error(f"{kind} stands twice", where, do="keep one of them")
            kinds.add(control.kind)
            yield from _control(kind, control, where)


def _control(kind: str, control: Any, where: str) -> Iterator[Finding]:
    given = [name for name in _VALUES if getattr(control, name)]
    if control.kind == _CORRID:
        data_type = value_name(DataType, control.data_type)
        if data_type not in _CORRID_TYPES:
            problem = "has no data_type" if control.data_type == 0 else f"cannot be of {data_type}"
            yield error(f"{kind} {problem}", where, do=f"write one of {', '.join(_CORRID_TYPES)}")
        if given:
            yield error(f"{kind} has no {given[0]}", where, "it is the number of the sequence", "take it out")
    elif len(given) != 1:
        what = f"{kind} has {' and '.join(given) or 'no values'}"
        yield error(what, where, do=f"write one of {', '.join(_VALUES)}, such as int32_false_true: [ 0, 1 ]")
    elif (count := len(getattr(control, given[0]))) != 2:
        yield error(f"{given[0]} has {count} values, not 2", where, do="write the value for no, then that for yes")


def _answers(config: Any) -> Iterator[Finding]:
    decoupled = config.model_transaction_policy.decoupled
    if config.response_cache.enable:
        if decoupled:
            what = "the response cache and decoupled answers exclude each other"
            yield error(what, "response_cache", do="take response_cache out")
        elif not config.HasField(_SEQUENCES):
            what = "nothing is cached on a server that is started without --cache-config"
            yield warning(what, "response_cache", "that is Triton's default")
    if decoupled and is_ensemble(config):
        what, why = "an ensemble is decoupled when one of its steps is", "Triton ignores what is written here"
        yield warning(what, "model_transaction_policy", why, "take it out")


def check_instances(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with instance groups and optimization."""
    if is_ensemble(config):
        present = {field.name for field, _ in config.ListFields()}
        for field, what in _OF_STEPS.items():
            if field in present:
                why, do = "the models of its steps have", f"move {field} into their configurations"
                yield error(f"an ensemble has no {what} of its own", field, why, do)
        return
    for number, group in enumerate(config.instance_group):
        yield from _group(f"instance_group[{number}]", group)
    yield from _accelerators(resolved(entry).name, config.optimization.execution_accelerators)


_KINDS: Final = {"openvino": "KIND_CPU", "tensorrt": "KIND_GPU"}
"""The only kind of instance that these backends load, by openvino.cc of openvino_backend and instance_state.cc of
tensorrt_backend. Triton's other backends refuse none."""


def check_kinds(entry: Entry, config: Any, gpus: int | None) -> Iterator[Finding]:
    """Yield which kinds of instances the backend refuses, on a server with so many GPUs; None: that is not known."""
    backend = resolved(entry).name
    if backend not in _KINDS or is_ensemble(config) or "enable_multi_device" in config.parameters:
        return
    takes = _KINDS[backend]
    do = "choose a server with a GPU" if takes == "KIND_GPU" and gpus == 0 else f"write kind: {takes}"
    for number, group in enumerate(config.instance_group):
        kind = value_name(ModelInstanceGroup.Kind, group.kind)
        why = f"it takes {takes} only"
        if kind == "KIND_AUTO" and gpus is not None:
            kind = "KIND_GPU" if gpus else "KIND_CPU"
            why = f"{why}, and KIND_AUTO is {kind} on this server"
        if kind not in (takes, "KIND_AUTO"):
            yield error(f"the {backend} backend refuses {kind}", f"instance_group[{number}]", why, do)


def check_gpus(config: Any, gpus: int | None) -> Iterator[Finding]:
    """Yield which instances a server with so many GPUs refuses; None: that is not known."""
    if gpus is None or is_ensemble(config):
        return
    for number, group in enumerate(config.instance_group):
        where = f"instance_group[{number}]"
        has = "no GPU" if not gpus else "1 GPU, number 0" if gpus == 1 else f"{gpus} GPUs, numbers 0 to {gpus - 1}"
        if group.kind == ModelInstanceGroup.KIND_GPU and not gpus:
            yield error("KIND_GPU, and the server has no GPU", where, do="write KIND_AUTO, or choose another server")
        elif group.kind in (ModelInstanceGroup.KIND_AUTO, ModelInstanceGroup.KIND_GPU) and any(
            each >= gpus for each in group.gpus
        ):
            what = f"gpus: {list(group.gpus)}, and the server has {has}"
            yield error(what, where if not gpus else f"{where}.gpus", do="name GPUs that it has, or take gpus out")


_SINCE = {
    "ensemble_scheduling.max_inflight_requests": (25, 11),
    "model_metrics": (24, 12),
    "runtime": (24, 2),
    "sequence_batching.state.use_growable_memory": (24, 1),
    "sequence_batching.state.use_same_buffer_for_input_output": (24, 1),
}
"""Fields that Triton's releases before do not know: they refuse the whole configuration."""
_BACKENDS_SINCE = {"torch_aoti": (26, 5)}


def check_release(entry: Entry, config: Any, release: str | None) -> Iterator[Finding]:
    """Yield what a release of Triton, such as 26.08, does not know; None, or another text: that is not known."""
    found = re.match(r"([0-9]{2})\.([0-9]{2})", release or "")
    if not found:
        return
    has = int(found[1]), int(found[2])
    fields = {re.sub(r"\[.*?\]", "", path): path for path in entry.text.lines if path} if entry.text else {}
    do = "take it out, or choose a server with a newer image"
    for field, first in _SINCE.items():
        if has < first and field in fields:
            what = f"{field.rpartition('.')[2]} came with Triton {first[0]}.{first[1]:02}, and the server has {release}"
            yield error(what, fields[field], "the server refuses the configuration", do)
    backend = resolved(entry)
    if (since := _BACKENDS_SINCE.get(backend.platform)) and has < since:
        what = f"{backend.platform} came with Triton {since[0]}.{since[1]:02}, and the server has {release}"
        yield error(what, "platform", do=do)
    parameters = config.parameters.keys()
    if backend.name == "fil" and has < (25, 9) and "output_class" not in parameters and "is_classifier" in parameters:
        yield error("FIL calls it output_class before 25.09", 'parameters["is_classifier"]', do="write both words")


def _group(place: str, group: Any) -> Iterator[Finding]:
    kind = value_name(ModelInstanceGroup.Kind, group.kind)
    if kind in ("KIND_CPU", "KIND_MODEL") and group.gpus:
        yield error(f"{kind} and gpus exclude each other", f"{place}.gpus", do="take one of both out")
    if group.count < 0:
        why = "Triton then runs the default number"
        yield warning(f"count is {group.count}", f"{place}.count", why, "write 1 or more")
    if group.HasField("rate_limiter"):
        what = "the rate limiter limits nothing on a server that is started without --rate-limit=execution_count"
        yield warning(what, f"{place}.rate_limiter", "that is Triton's default")


def _accelerators(backend: str, chosen: Any) -> Iterator[Finding]:
    for field, known in _ACCELERATORS.items():
        for number, one in enumerate(getattr(chosen, field)):
            where = f"optimization.execution_accelerators.{field}[{number}]"
            if backend not in known:
                yield warning(f"the {backend} backend has no {field}", where, "it ignores it", "take it out")
            elif one.name not in known[backend]:
                what = f"the {backend} backend has no accelerator '{one.name}'"
                why = f"it knows {', '.join(known[backend])}, and ignores or refuses others"
                yield warning(what, where, why, closest(one.name, known[backend]))
