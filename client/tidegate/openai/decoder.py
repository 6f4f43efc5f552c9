"""What config.json says of a decoder, held against the tensors that are there.

It goes by `embed_tokens`, `layers` and `lm_head`, which mean the same in every decoder of transformers that has them at
these places, alone or as `language_model` beside other parts. Where a model has none of them, nothing is compared.
"""

import math
import re
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from itertools import count
from typing import Any, Final

from ..findings import Finding, error, warning
from .weights import StoredTensor

CONFIG: Final = "config.json"
_PART: Final = r"(?:language_model\.)?(?:model\.)?(?:language_model\.)?"
_EMBEDDING: Final = re.compile(rf"{_PART}embed_tokens\.weight")
_LAYER: Final = re.compile(rf"{_PART}layers\.([0-9]{{1,9}})\.")
_TYPES: Final = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
"""How config.json names types of tensors; those that hold quantised weights, whose shapes are others, have no name."""
_CONFIGURATION: Final = "get the configuration of the model"
_ONE: Final = "get configuration and weights of one model"


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is said of the part that reads and writes text: of models that see, too, it is a part of its own."""
    part = config.get("text_config")
    return part if isinstance(part, dict) else config


def check_numbers(part: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what numbers of a configuration cannot be, whatever the weights are."""
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"):
        value = part.get(key)
        if isinstance(value, str) or (isinstance(value, int | float) and value < 1):
            yield error(f"{key} is {reprlib.repr(value)}, and no number from 1 on", CONFIG, do=_CONFIGURATION)
    apart = any("head_dim" in key or "head_size" in key for key in part)  # heads have a size of their own
    pairs = [("num_attention_heads", "num_key_value_heads"), *([("hidden_size", "num_attention_heads")] * (not apart))]
    for key, divisor in pairs:
        many, parts = _number(part, key), _number(part, divisor)
        if many and parts and parts > 0 and many % parts:
            what = f"{key} is {many}, which {divisor}, {parts}, does not divide"
            yield error(what, CONFIG, "engines refuse that", _CONFIGURATION)


def check_decoder(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> Iterator[Finding]:
    """Yield where configuration and tensors are not of one model; all files of weights are there."""
    embeddings = [name for name in tensors if _EMBEDDING.fullmatch(name)]
    for name in embeddings:
        if tensors[name].dtype in _TYPES and len(tensors[name].shape) == 2:
            yield from _embedding(config, name, *tensors[name].shape)
    layers: dict[int, set[str]] = {}
    for name in tensors:
        if match := _LAYER.match(name):
            layers.setdefault(int(match[1]), set()).add(name[match.end() :])
    yield from _layers(text_config(config), layers.keys())
    if not _is_quantised(config):  # Some modules may be as they were, without what others have beside their weights.
        yield from _holes(text_config(config), layers)
    untied = all(part.get("tie_word_embeddings") is False for part in (config, text_config(config)))
    generates = "ForCausalLM" in str(config.get("architectures"))
    if embeddings and untied and generates and not any("lm_head." in name for name in tensors):
        why = "engines refuse that, or draw the tensor at random"
        yield error("tie_word_embeddings is false, and there is no lm_head.weight", CONFIG, why, _ONE)
    yield from _type(config, tensors)


def _embedding(config: Mapping[str, Any], name: str, rows: int, columns: int) -> Iterator[Finding]:
    part = text_config(config)
    words, width = (_number(part, key) for key in ("vocab_size", "hidden_size"))
    what = f"vocab_size is {words}, and {name} has {rows} rows"
    if words is not None and rows < words:
        yield error(what, CONFIG, do=_ONE)
    elif words is not None and rows > words and part is config:  # Models that see have rows beside those of words.
        yield warning(what, CONFIG, "most engines refuse that", "set vocab_size to the rows, or " + _ONE)
    if width is not None and columns != width:
        yield error(f"hidden_size is {width}, and {name} has {columns} columns", CONFIG, do=_ONE)


def _layers(part: Mapping[str, Any], there: Set[int]) -> Iterator[Finding]:
    said = _number(part, "num_hidden_layers")
    if said is None or not there:
        return
    lacks = next(number for number in count() if number not in there)
    # Layers that predict further tokens come after the others.
    more = max(there) - said - (_number(part, "num_nextn_predict_layers") or 0)
    if lacks < said:
        yield error(f"num_hidden_layers is {said}, and there are no weights of layer {lacks}", CONFIG, do=_ONE)
    elif more >= 0:
        what = f"num_hidden_layers is {said}, and there are weights of layer {max(there)}"
        yield warning(what, CONFIG, "engines leave them out, or refuse them", _ONE)


def _holes(part: Mapping[str, Any], layers: Mapping[int, set[str]]) -> Iterator[Finding]:
    """Yield what one layer alone lacks of a module that it has, and of which it has nothing else instead.

    Layers of one model need not be alike: the first ones may be dense, and some have no attention at all. Of two that
    differ nothing says which is the odd one.
    """
    said = _number(part, "num_hidden_layers")
    counted = {number: names for number, names in layers.items() if said is None or number < said}
    every = Counter(name for names in counted.values() for name in names)
    for number, names in sorted(counted.items()):
        modules = {each for name in names for each in _modules(name)}
        lacks = [name for name in every.keys() - names if every[name] == len(counted) - 1]
        odd = sorted(name for name in lacks if name.rpartition(".")[0].rpartition(".")[0] in modules)
        if odd and len(counted) > 2 and all(every[name] > 1 for name in names):
            what = f"layer {number} lacks {odd[0]}, which all others have"
            why = "engines refuse that, or draw the tensor at random"
            yield error(what, CONFIG, why, "get all of the weights again")


def _modules(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name


def _type(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> Iterator[Finding]:
    parts = (text_config(config), config)
    keys = ((key, part[key]) for part in parts for key in ("dtype", "torch_dtype") if key in part)
    key, said = next(keys, ("", None))
    sizes: Counter[str] = Counter()
    for tensor in tensors.values():
        sizes[tensor.dtype] += math.prod(tensor.shape)
    most = _TYPES.get(max(sizes, key=sizes.__getitem__, default=""))
    if said in (*_TYPES.values(),) and most not in (None, said) and not _is_quantised(config):
        what = f"{key} is {said}, and most of the weights are {most}"
        do = "see that this is meant, and that both are of one model"
        yield warning(what, CONFIG, "engines convert them as they load", do)


def _is_quantised(config: Mapping[str, Any]) -> bool:
    return any(key.startswith("quantization") for part in (text_config(config), config) for key in part)


def _number(said: Mapping[str, Any], key: str) -> int | None:
    value = said.get(key)
    return value if type(value) is int else None
