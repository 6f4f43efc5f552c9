"""Checks instances, devices and accelerators, dynamic batching, sequences, and the response cache."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tritonclient.grpc.model_config_pb2 import DataType, ModelInstanceGroup, ModelQueuePolicy, ModelSequenceBatching

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import closest, value_name
from .backends import TENSORRT, is_ensemble, resolved

_ACCELERATORS = {"gpu_execution_accelerator": ("cuda", "tensorrt"), "cpu_execution_accelerator": ("openvino",)}
"""Those of onnxruntime, the only backend with accelerators."""
_OF_STEPS = {"instance_group": "instances", "model_warmup": "warm-up", "optimization": "optimization"}
"""Fields that the steps of an ensemble may have, but not the ensemble itself."""
_BATCHING, _SEQUENCES = "dynamic_batching", "sequence_batching"
_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRID = ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID
_CORRID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def check(_entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield findings about max_batch_size, batching, sequences, the response cache, decoupled responses and metrics."""
    if config.max_batch_size < 0:
        yield error(f"max_batch_size is {config.max_batch_size}", "max_batch_size", do="write 0 for no batches")
    if config.HasField(_BATCHING):
        yield from _dynamic(config.dynamic_batching, config.max_batch_size)
    if config.HasField(_SEQUENCES):
        yield from _sequences(config)
    yield from _answers(config)
    for number, control in enumerate(config.model_metrics.metric_control):
        where = f"model_metrics.metric_control[{number}]"
        if not control.metric_identifier.family:
            yield error("a metric has no family", where, do='write metric_identifier { family: "…" }')
        if not control.histogram_options.buckets:
            yield error("a metric has no buckets", where, do="write histogram_options { buckets: [ … ] }")


def _dynamic(batching: Any, largest: int) -> Iterator[Finding]:
    yield from _preferred(f"{_BATCHING}.preferred_batch_size", batching.preferred_batch_size, largest)
    if largest <= 1:
        do = f"{'raise' if largest == 1 else 'set'} max_batch_size, or remove dynamic_batching"
        yield warning("dynamic_batching has no effect", _BATCHING, f"max_batch_size is {largest}", do)
    yield from _priorities(batching)
    yield from _order(batching)
    policies = {"default_queue_policy": batching.default_queue_policy} | {
        f'priority_queue_policy["{level}"]': policy for level, policy in batching.priority_queue_policy.items()
    }
    for name, policy in policies.items():
        has_timeout = policy.default_timeout_microseconds or policy.allow_timeout_override
        if policy.timeout_action == ModelQueuePolicy.DELAY and not has_timeout:
            where, do = f"{_BATCHING}.{name}.timeout_action", "set default_timeout_microseconds"
            yield warning("timeout_action has no effect", where, "no request has a timeout", do)


def _preferred(field: str, sizes: Any, largest: int) -> Iterator[Finding]:
    for number, size in enumerate(sizes):
        where = f"{field}[{number}]"
        if size <= 0:
            yield error(f"a preferred batch size is {size}", where, do="write sizes from 1 to max_batch_size")
        elif size > largest:
            what = f"the preferred batch size {size} is larger than max_batch_size ({max(largest, 0)})"
            yield error(what, where, do=f"set max_batch_size to {size} or more, or remove the size")


def _priorities(batching: Any) -> Iterator[Finding]:
    levels = batching.priority_levels
    if not levels:
        for field in ("default_priority_level", "priority_queue_policy"):
            if getattr(batching, field):
                why, do = "priority_levels is not set", "set priority_levels"
                yield warning(f"{field} has no effect", f"{_BATCHING}.{field}", why, do)
        return
    default = batching.default_priority_level
    if not 1 <= default <= levels:
        what = f"default_priority_level is {default}, but the levels are 1 to {levels}"
        yield error(what, f"{_BATCHING}.default_priority_level", do="write the level of requests without one")
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            where = f'{_BATCHING}.priority_queue_policy["{level}"]'
            yield error(f"there is no priority level {level}", where, f"the levels are 1 to {levels}")


def _order(batching: Any) -> Iterator[Finding]:
    if not batching.preserve_ordering:
        return
    where = f"{_BATCHING}.preserve_ordering"
    if batching.priority_levels > 1:
        yield error("preserve_ordering allows only one priority level", where, do="remove one of them")
    for policy in (batching.default_queue_policy, *batching.priority_queue_policy.values()):
        if policy.default_timeout_microseconds and policy.timeout_action == ModelQueuePolicy.DELAY:
            what, do = "preserve_ordering and timeout_action: DELAY exclude each other", "write timeout_action: REJECT"
            yield error(what, where, "a delayed request is answered after later ones", do)


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
            yield warning("'oldest' forms no batches", where, "max_batch_size is 0", "set max_batch_size")
    if not 0 <= (share := batching.direct.minimum_slot_utilization) <= 1:
        what, where = f"minimum_slot_utilization is {share:g}", f"{_SEQUENCES}.direct.minimum_slot_utilization"
        yield error(what, where, "it is a share of the slots", "write a number from 0 to 1")
    if config.response_cache.enable:
        what, do = "the response cache and sequences exclude each other", "remove response_cache"
        yield error(what, "response_cache", "a response of a sequence depends on earlier requests", do)


def _controls(batching: Any, inputs: set[str]) -> Iterator[Finding]:
    names: set[str] = set()
    kinds: set[int] = set()
    for number, tensor in enumerate(batching.control_input):
        place = f"{_SEQUENCES}.control_input[{number}]"
        if not tensor.name:
            yield error("a control input has no name", place, do='write name: "…"')
        elif tensor.name in names:
            yield error(f"the control input '{tensor.name}' appears twice", place, do="give each its own name")
        elif tensor.name in inputs:
            what, do = f"'{tensor.name}' is an input and a control input", "remove it from the inputs"
            yield warning(what, place, "Triton sets it, so callers must not send it", do)
        names.add(tensor.name)
        if not tensor.control:
            do = "write control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }"
            yield warning(f"the control input '{tensor.name}' controls nothing", place, do=do)
        for index, control in enumerate(tensor.control):
            kind, where = value_name(ModelSequenceBatching.Control.Kind, control.kind), f"{place}.control[{index}]"
            if control.kind in kinds:
                yield error(f"{kind} appears twice", where, do="keep one of them")
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
            yield error(f"{kind} has no {given[0]}", where, "it is the number of the sequence", "remove it")
    elif len(given) != 1:
        what = f"{kind} has {' and '.join(given) or 'no values'}"
        yield error(what, where, do=f"write one of {', '.join(_VALUES)}, such as int32_false_true: [ 0, 1 ]")
    elif (count := len(getattr(control, given[0]))) != 2:
        yield error(f"{given[0]} has {count} values, not 2", where, do="write the value for no, then the one for yes")


def _answers(config: Any) -> Iterator[Finding]:
    decoupled = config.model_transaction_policy.decoupled
    if config.response_cache.enable:
        if decoupled:
            what = "the response cache and decoupled responses exclude each other"
            yield error(what, "response_cache", do="remove response_cache")
        elif not config.HasField(_SEQUENCES):
            what = "a server without --cache-config caches nothing"
            yield warning(what, "response_cache", "that is Triton's default")
    if decoupled and is_ensemble(config):
        what, why = "an ensemble is decoupled if one of its steps is", "Triton ignores this field"
        yield warning(what, "model_transaction_policy", why, "remove it")


_KINDS: Final = {"openvino": "KIND_CPU", "tensorrt": "KIND_GPU"}
"""The only kind of instance that these backends load (openvino.cc of openvino_backend and instance_state.cc of
tensorrt_backend). Triton's other backends load all kinds."""


def check_instances(entry: Entry, config: Any, gpus: int | None) -> Iterator[Finding]:
    """Yield findings about optimization, and about instances on a server with so many GPUs. None: unknown."""
    if is_ensemble(config):
        for field, _ in config.ListFields():
            if field.name in _OF_STEPS:
                why, do = "the models of its steps have", f"move {field.name} into their configurations"
                yield error(f"an ensemble has no {_OF_STEPS[field.name]}", field.name, why, do)
        return
    backend = resolved(entry)
    for number, group in enumerate(config.instance_group):
        place, kind = f"instance_group[{number}]", value_name(ModelInstanceGroup.Kind, group.kind)
        yield from _gpus(place, kind, group.gpus, gpus)
        if backend.name in _KINDS and "enable_multi_device" not in config.parameters:
            yield from _kind(place, kind, backend.name, gpus)
        for profile in group.profile:
            if backend.platform != TENSORRT:
                yield error("the group has a profile", f"{place}.profile", "only TensorRT has profiles", "remove it")
            elif not re.match(r"\s*\+?[0-9]", profile):
                yield error(f"'{profile}' is not the number of a profile", f"{place}.profile", do="write its number")
        if group.count < 0:
            why = "Triton then runs the default number"
            yield warning(f"count is {group.count}", f"{place}.count", why, "write 1 or more")
        if group.HasField("rate_limiter"):
            what = "the rate limiter has no effect on a server without --rate-limit=execution_count"
            yield warning(what, f"{place}.rate_limiter", "that is Triton's default")
    yield from _accelerators(backend.name, config.optimization.execution_accelerators)


def _kind(place: str, kind: str, backend: str, gpus: int | None) -> Iterator[Finding]:
    takes = _KINDS[backend]
    why = f"it supports only {takes}"
    if kind == "KIND_AUTO" and gpus is not None:
        kind = "KIND_GPU" if gpus else "KIND_CPU"
        why = f"{why}, and KIND_AUTO is {kind} on this server"
    if kind not in (takes, "KIND_AUTO"):
        do = "choose a server with a GPU" if takes == "KIND_GPU" and gpus == 0 else f"write kind: {takes}"
        yield error(f"the {backend} backend refuses {kind}", place, why, do)


def _gpus(place: str, kind: str, listed: Any, gpus: int | None) -> Iterator[Finding]:
    if kind in ("KIND_CPU", "KIND_MODEL"):
        if listed:
            yield error(f"{kind} and gpus exclude each other", f"{place}.gpus", do="remove one of them")
    elif kind == "KIND_GPU" and gpus == 0:
        yield error("KIND_GPU, but the server has no GPU", place, do="write KIND_AUTO, or choose another server")
    elif any(each < 0 or (gpus is not None and each >= gpus) for each in listed):
        has = "no GPU" if not gpus else "1 GPU, number 0" if gpus == 1 else f"{gpus} GPUs, numbers 0 to {gpus - 1}"
        what = f"gpus: {list(listed)}, but " + ("numbers start at 0" if gpus is None else f"the server has {has}")
        yield error(what, f"{place}.gpus", do="list GPUs of the server, or remove gpus")


_SINCE = {
    "ensemble_scheduling.max_inflight_requests": (25, 11),
    "model_metrics": (24, 12),
    "runtime": (24, 2),
    "sequence_batching.state.use_growable_memory": (24, 1),
    "sequence_batching.state.use_same_buffer_for_input_output": (24, 1),
}
"""Fields and the first release of Triton that knows them. Earlier ones refuse the whole configuration."""
_BACKENDS_SINCE = {"torch_aoti": (26, 5)}


def check_release(entry: Entry, config: Any, release: str | None) -> Iterator[Finding]:
    """Yield what a release of Triton, such as 26.08, does not support. None or another text: unknown."""
    found = re.match(r"([0-9]{2})\.([0-9]{2})", release or "")
    if not found:
        return
    has = int(found[1]), int(found[2])
    fields = {re.sub(r"\[.*?\]", "", path): path for path in entry.text.lines if path} if entry.text else {}
    do = "remove it, or choose a server with a newer image"
    for field, first in _SINCE.items():
        if has < first and field in fields:
            what = f"{field.rpartition('.')[2]} requires Triton {first[0]}.{first[1]:02}, but the server has {release}"
            yield error(what, fields[field], "the server refuses the configuration", do)
    backend = resolved(entry)
    if (since := _BACKENDS_SINCE.get(backend.platform)) and has < since:
        what = f"{backend.platform} requires Triton {since[0]}.{since[1]:02}, but the server has {release}"
        yield error(what, "platform", do=do)
    parameters = config.parameters.keys()
    if backend.name == "fil" and has < (25, 9) and "output_class" not in parameters and "is_classifier" in parameters:
        what = "before 25.09, FIL's name for it is output_class"
        yield error(what, 'parameters["is_classifier"]', do="write both parameters")


def _accelerators(backend: str, chosen: Any) -> Iterator[Finding]:
    for field, known in _ACCELERATORS.items():
        for number, one in enumerate(getattr(chosen, field)):
            where = f"optimization.execution_accelerators.{field}[{number}]"
            if backend != "onnxruntime":
                yield warning(f"the {backend} backend has no {field}", where, "it ignores the field", "remove it")
            elif one.name not in known:
                what = f"the {backend} backend has no accelerator '{one.name}'"
                why = f"it has {', '.join(known)}, and ignores or refuses others"
                yield warning(what, where, why, closest(one.name, known))
