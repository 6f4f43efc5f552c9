"""Large language models: engines of TensorRT-LLM, and what vLLM serves."""

import json
from pathlib import Path
from typing import Any

from tidegate_contracts.triton import REPOSITORY_ROOT
from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from ....errors import UsageError
from .python import files_of
from .reading import Reading, Tensor, bounded, config_of, in_range, unreadable

CONFIG, ENGINE = "config.json", "rank0.engine"
ARGUMENTS = "model.json"
LIMIT = 4 << 20
PATH = "gpt_model_path"
_ONE = ("end_id INT32", "pad_id INT32", "beam_width INT32", "temperature FP32", "runtime_top_k INT32",
        "runtime_top_p FP32", "len_penalty FP32", "repetition_penalty FP32", "min_length INT32",
        "presence_penalty FP32", "frequency_penalty FP32", "random_seed UINT64", "return_log_probs BOOL",
        "stop BOOL", "streaming BOOL")  # fmt: skip
"""Optional inputs of one element, as in the configuration that NVIDIA publishes with the backend."""


def read_tensorrt_llm(source: Path) -> Reading:
    """Read the folder that `trtllm-build` wrote: `config.json` and `rank<N>.engine`."""
    file = source / CONFIG
    try:
        built = json.loads(bounded(file, LIMIT, "an engine's config.json"))["build_config"]
        batch, beams = int(built["max_batch_size"]), int(built.get("max_beam_width", 1))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise unreadable(file, "configuration of a TensorRT-LLM engine", error) from None
    parameters = [("gpt_model_type", "inflight_fused_batching"), ("max_beam_width", str(beams))]
    config = config_of("tensorrtllm", parameters=parameters)
    with in_range(str(file)):
        config.max_batch_size = batch
    config.model_transaction_policy.decoupled = True
    config.dynamic_batching.SetInParent()
    config.instance_group.add(count=1, kind=ModelInstanceGroup.KIND_CPU)  # the engine takes its GPUs itself
    note = (
        f"TensorRT-LLM finds its engine by an absolute path, one for all versions of a model ({PATH}): it is below "
        f"{REPOSITORY_ROOT}, and deploying a version sets its number there; where Triton has another folder for "
        f"models: --parameter {PATH}=PATH"
    )
    return Reading(config, files_of(source), _INPUTS, _OUTPUTS, whole_shapes=False, notes=(note,))


def read_vllm(source: Path) -> Reading:
    """Read model.json, or a folder with it (`multi_lora.json` comes along)."""
    file = source / ARGUMENTS if source.is_dir() else source
    try:
        said = json.loads(bounded(file, LIMIT, "a model.json"))
    except (ValueError, RecursionError) as error:
        raise unreadable(file, "model.json of vLLM", error) from None
    model = said.get("model") if isinstance(said, dict) else None
    if not isinstance(model, str) or not model:
        raise UsageError("it names no model", where=file, do='say {"model": "name at Hugging Face, or a folder"}')
    config = config_of("vllm")
    config.instance_group.add(count=1, kind=ModelInstanceGroup.KIND_MODEL)  # vLLM takes its GPUs itself
    config.model_transaction_policy.decoupled = True
    notes = ["vLLM names its own tensors to Triton (text_input, sampling_parameters, …, text_output)"]
    if "/" in model and (model.startswith((".", "/")) or (file.parent / model).exists()):
        notes.append(f"vLLM reads {model} where Triton runs: the weights are no part of the entry, and must lie there")
    elif "/" in model:
        notes.append(f"vLLM fetches {model} from Hugging Face when it loads, unless the image holds it")
    return Reading(config, files_of(source, ARGUMENTS), notes=tuple(notes))


def place_engine(config: Any) -> None:
    """Name the engine's folder, where the settings do not."""
    if not config.parameters[PATH].string_value:
        config.parameters[PATH].string_value = f"{REPOSITORY_ROOT}/{config.name}/1"


_INPUTS = (
    Tensor("input_ids", "INT32", (-1,), ragged=True), Tensor("input_lengths", "INT32", ()),
    Tensor("request_output_len", "INT32", ()),
    *(Tensor(name, kind, (), optional=True) for name, kind in (each.split() for each in _ONE)),
)  # fmt: skip
_OUTPUTS = (
    Tensor("output_ids", "INT32", (-1, -1)), Tensor("sequence_length", "INT32", (-1,)),
    Tensor("cum_log_probs", "FP32", (-1,)), Tensor("output_log_probs", "FP32", (-1, -1)),
)  # fmt: skip
