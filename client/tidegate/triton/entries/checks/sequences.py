"""Sequences: controls, states, and the strategy by which they are batched."""

from collections.abc import Iterator
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelSequenceBatching

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import value_name
from .batching import preferred

_FIELD = "sequence_batching"
_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRID = ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID
_CORRID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
_VARIES = -1


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with sequence batching."""
    if not config.HasField(_FIELD):
        return
    batching = config.sequence_batching
    yield from _controls(entry, config, batching)
    yield from _states(entry, batching)
    if batching.HasField("oldest"):
        sizes = batching.oldest.preferred_batch_size
        yield from preferred(entry, f"{_FIELD}.oldest.preferred_batch_size", sizes, config.max_batch_size)
        if config.max_batch_size < 1:
            yield warning(
                "'oldest' makes no batches",
                entry.where(f"{_FIELD}.oldest"),
                "max_batch_size is 0",
                "set max_batch_size",
            )
    utilization = batching.direct.minimum_slot_utilization
    if utilization < 0 or utilization > 1:
        yield error(
            f"minimum_slot_utilization is {utilization:g}",
            entry.where(f"{_FIELD}.direct.minimum_slot_utilization"),
            "it is a part of 1",
            "write a number from 0 to 1",
        )
    if config.response_cache.enable:
        yield error(
            "the response cache and sequences exclude each other",
            entry.where("response_cache"),
            "what a sequence answers depends on what came before",
            "take response_cache out",
        )


def _controls(entry: Entry, config: Any, batching: Any) -> Iterator[Finding]:
    names: set[str] = set()
    kinds: set[int] = set()
    inputs = {tensor.name for tensor in config.input}
    for number, tensor in enumerate(batching.control_input):
        place = f"{_FIELD}.control_input[{number}]"
        if not tensor.name:
            yield error("a control input has no name", entry.where(place), do='write name: "…"')
        elif tensor.name in names:
            yield error(f"the control input '{tensor.name}' stands twice", entry.where(place), do="give each its name")
        elif tensor.name in inputs:
            yield warning(
                f"'{tensor.name}' is an input and a control input",
                entry.where(place),
                "Triton fills it in by itself, so that no caller need give it",
                "take it out of the inputs",
            )
        names.add(tensor.name)
        if not tensor.control:
            yield warning(
                f"the control input '{tensor.name}' controls nothing",
                entry.where(place),
                do="write control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }",
            )
        for index, control in enumerate(tensor.control):
            kind = value_name(ModelSequenceBatching.Control.Kind, control.kind)
            where = entry.where(f"{place}.control[{index}]")
            if control.kind in kinds:
                yield error(f"{kind} stands twice", where, do="keep one of them")
            kinds.add(control.kind)
            yield from _control(kind, control, where)


def _control(kind: str, control: Any, where: str) -> Iterator[Finding]:
    given = [name for name in _VALUES if getattr(control, name)]
    if control.kind == _CORRID:
        data_type = value_name(DataType, control.data_type)
        if data_type not in _CORRID_TYPES:
            said = "has no data_type" if control.data_type == 0 else f"cannot be of {data_type}"
            yield error(f"{kind} {said}", where, do=f"write one of {', '.join(_CORRID_TYPES)}")
        if given:
            yield error(f"{kind} has no {given[0]}", where, "it is the number of the sequence", "take it out")
    elif len(given) != 1:
        what = f"{kind} has {' and '.join(given)}" if given else f"{kind} has no values"
        yield error(what, where, do=f"write one of {', '.join(_VALUES)}, such as int32_false_true: [ 0, 1 ]")
    elif len(getattr(control, given[0])) != 2:
        yield error(
            f"{given[0]} has {len(getattr(control, given[0]))} values, not 2",
            where,
            do="write the value for no, then that for yes",
        )


def _states(entry: Entry, batching: Any) -> Iterator[Finding]:
    names: set[str] = set()
    for number, state in enumerate(batching.state):
        place = f"{_FIELD}.state[{number}]"
        said = f"the state '{state.input_name}'"
        if state.input_name in names and state.initial_state:
            yield error(f"{said} stands twice", entry.where(place), do="give each its name")
        names.add(state.input_name)
        for field in ("input_name", "output_name"):
            if not getattr(state, field):
                yield warning(f"{said} has no {field}", entry.where(place), do=f'write {field}: "…"')
        if len(state.initial_state) > 1:
            yield error(
                f"{said} has {len(state.initial_state)} initial states",
                entry.where(f"{place}.initial_state[1]"),
                do="keep one of them",
            )
        for initial in state.initial_state[:1]:
            yield from _initial_state(entry, f"{place}.initial_state[0]", said, state, initial)


def _initial_state(entry: Entry, place: str, said: str, state: Any, initial: Any) -> Iterator[Finding]:
    where = entry.where(place)
    if initial.data_type != state.data_type:
        yield error(f"{said} and its initial state are of different types", where, do="write the same data_type")
    if not initial.name:
        yield error(f"the initial state of {said} has no name", where, do='write name: "…"')
    if _VARIES in initial.dims:
        yield error(
            f"the initial state of {said} has a dimension that varies",
            f"{entry.where(f'{place}.dims')}",
            do="write sizes",
        )
    elif len(initial.dims) != len(state.dims) or any(
        size not in (_VARIES, own) for size, own in zip(state.dims, initial.dims, strict=True)
    ):
        yield error(
            f"{said} has dims {list(state.dims)}, its initial state {list(initial.dims)}", where, do="make both fit"
        )
    match initial.WhichOneof("state_data"):
        case None:
            yield error(f"the initial state of {said} has no data", where, do="write zero_data: true, or a data_file")
        case "data_file" if f"initial_state/{initial.data_file}" not in {file.path for file in entry.files}:
            yield error(
                f"there is no file initial_state/{initial.data_file}",
                entry.where(f"{place}.data_file"),
                "it lies in the entry's folder initial_state",
                "put it there",
            )
