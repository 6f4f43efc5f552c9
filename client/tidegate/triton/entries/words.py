"""Common wrong names for Triton's names, and the most similar known names."""

from collections.abc import Collection, Iterator
from typing import Any

from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...names import alike

_OTHER_NAMES = {
    "TYPE_FLOAT": "TYPE_FP32",
    "TYPE_HALF": "TYPE_FP16",
    "TYPE_DOUBLE": "TYPE_FP64",
    "TYPE_BYTES": "TYPE_STRING",
    "TYPE_BYTE": "TYPE_UINT8",
    "TYPE_INT": "TYPE_INT32",
    "TYPE_LONG": "TYPE_INT64",
    "BYTES": "TYPE_STRING",
    "KIND_CUDA": "KIND_GPU",
    "shape": "dims",
    "type": "data_type",
    "decoupled": "model_transaction_policy",
    "inputs": "input",
    "labels": "label_filename",
    "filename": "default_model_filename",
    "onnx": "onnxruntime",
    "trt": "tensorrt",
    "xgboost": "fil",
    "lightgbm": "fil",
    "sklearn": "fil",
}
"""For names whose most similar known name is not the intended one, or not similar enough."""
_COMPARED = 200  # Limit of known names to compare, because comparing is slow and there may be many errors.
_POOLS = (
    "a model has no memory pool: Triton's pools belong to the server",
    "remove it. The server's options are --pinned-memory-pool-byte-size and --cuda-memory-pool-byte-size",
)
_NOT_THERE = {
    "memory_pool_byte_size": _POOLS,
    "memory_pool_alignment": _POOLS,
    "memory_pool_size": _POOLS,
    "model_config": (
        "config.pbtxt contains the fields of the model's configuration directly",
        "write its fields without model_config { … }",
    ),
}


def nearest(word: str, known: Collection[str]) -> str | None:
    """Return the known name that was probably meant."""
    other = _OTHER_NAMES.get(word)
    return other if other in known else alike(word, known)


def closest(word: str, known: Collection[str], otherwise: str = "") -> str:
    """Return a hint with the most similar name, or `otherwise`."""
    near = nearest(word, known) if len(known) <= _COMPARED else None
    return f"did you mean '{near}'?" if near else otherwise


def value_name(enum: Any, number: int) -> str:
    """Return the name of an enum's value, or the number if it has none."""
    return str(enum.Name(number)) if number in enum.values() else str(number)


def unknown_field(name: str, message: Any) -> tuple[str, str, str]:
    """Return what, why and the remedy for a field that is not in the message of this descriptor."""
    inside = "" if message is ModelConfig.DESCRIPTOR else f" within {_words(message)}"
    what = f"there is no field '{name}'{inside}"
    if name in _NOT_THERE:
        return (what, *_NOT_THERE[name])
    known = list(message.fields_by_name)
    if _OTHER_NAMES.get(name) in known:
        return what, "", f"did you mean '{_OTHER_NAMES[name]}'?"
    homes = [each for each in _messages(ModelConfig.DESCRIPTOR) if name in each.fields_by_name and each is not message]
    if homes:
        top = ModelConfig.DESCRIPTOR in homes
        home = "the model itself" if top else " or ".join(sorted({_words(home) for home in homes}))
        do = f"move {name} out to the top level of the file" if top else f"move {name} to where it belongs"
        return what, f"it is a field of {home}", do
    return what, "", closest(name, known, f"the fields here are {', '.join(sorted(known))}")


def unknown_enum_value(word: str, field: Any) -> tuple[str, str, str]:
    """Return what, why and the remedy for a value that is not in the enum of this field."""
    known = [name for name in field.enum_type.values_by_name if name not in ("TYPE_INVALID",)]
    bare = word.strip("\"'")
    what = f"'{bare}' is not a value of '{field.name}'"
    if bare in known:
        return f"{word} is in quotes", "", f"write {bare} without quotes"
    near = nearest(bare, known) or next((name for name in known if name.endswith(f"_{bare.upper()}")), None)
    return what, "", f"did you mean {near}?" if near else f"use one of {', '.join(known)}"


def _messages(message: Any) -> Iterator[Any]:
    waiting, seen = [message], set()
    while waiting:
        one = waiting.pop()
        if one.full_name in seen or (one.GetOptions().map_entry and one.fields_by_name["value"].message_type is None):
            continue
        seen.add(one.full_name)
        if not one.GetOptions().map_entry:
            yield one
        waiting.extend(field.message_type for field in one.fields if field.message_type is not None)


def _words(message: Any) -> str:
    """Return the name of a message in config.pbtxt: ModelDynamicBatching is dynamic_batching."""
    names = {
        field.name
        for home in _messages(ModelConfig.DESCRIPTOR)
        for field in home.fields
        if field.message_type is message or _map_value(field) is message
    }
    return "/".join(sorted(names)) or message.name


def _map_value(field: Any) -> Any:
    inner = field.message_type
    return inner.fields_by_name["value"].message_type if inner is not None and inner.GetOptions().map_entry else None
